"""What another host says of a workload is taken for what it may be: a name, settings, and something to compare."""

import pytest

from gpusched.api.joining import _workload_for
from gpusched.errors import HostFault, UsageError
from gpusched.joining.invitation import Invitation, invitation
from gpusched.model.workload import Workload


def told(workload: str = "snake", options: str = "{}") -> Invitation:
    return Invitation(job="snake-4", workload=workload, options=options, files={}, versions={})


@pytest.mark.parametrize("name", ["../snake", "/tmp/snake", "workload.toml", "snake/../snake", "", ".", "..", "a\nb"])
def test_a_name_finds_no_file_elsewhere(name: str) -> None:
    with pytest.raises(UsageError):
        _workload_for(told(name), None, different=True)


@pytest.mark.parametrize(
    "options",
    ["", "[]", "{", '{"network": 3}', '{"nope": 1}', "[" * 5000, '{"a":' * 5000, '{"minutes": -1}', '{"games": 1e400}'],
)
def test_settings_are_those_of_this_hosts_own_class(options: str) -> None:
    with pytest.raises(UsageError):
        _workload_for(told(options=options), None, different=True)


def test_what_differs_is_told_up_to_five_and_harmless_to_a_terminal() -> None:
    files = {f"part_{number}\x1b[2J.py": "0" for number in range(9)}
    with pytest.raises(HostFault) as error:
        _workload_for(
            Invitation(job="j", workload="snake", options="{}", files=files, versions={}), None, different=False
        )

    assert error.value.message.count(";") == 5
    assert "\x1b" not in error.value.message
    assert " more" in error.value.message


def test_of_the_same_workload_only_the_actors_are_run_and_they_end_by_themselves() -> None:
    from gpusched.execution.workloads import load_workload

    snake = load_workload("snake")
    (found, options), _ = _workload_for(
        invitation(
            "snake-4", "snake", snake.path, b'{"network":"small","inference":"learner","weights":"/lab1/w.npz"}'
        ),
        None,
        different=False,
    )

    assert isinstance(found, Workload)
    assert [role.name for role in found.roles] == ["actor"]
    assert found.roles[0].memory is None, "under the learner's settings its actors need no device"
    assert (found.leader, found.requeue) == (None, False)
    assert b'"weights":"/lab1/w.npz"' in options, "a file of the learner's host is not looked for here"
