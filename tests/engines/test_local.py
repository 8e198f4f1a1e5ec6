"""The engine of this host: what it leaves where a start fails."""

from pathlib import Path

import pytest

from gpusched.engines.local import Local
from gpusched.errors import HostFault
from gpusched.execution.directory import create
from gpusched.execution.plan_options import PlanOptions
from gpusched.execution.submission import workload_submission
from gpusched.model.status import JobState
from gpusched.model.workload import Role, Workload
from gpusched.settings import load_settings
from tests.supervisor.host import Host
from tests.supervisor.specs import replica


def test_a_directory_that_was_there_before_a_start_stays_when_the_start_fails(tmp_path: Path) -> None:
    places = {f"GPUSCHED_{place}_DIR": str(tmp_path / place.lower()) for place in ("STATE", "RUNTIME", "LEASE")}
    settings = load_settings(places)
    directory = create(settings.state_dir, "mine")
    directory.tmp.rmdir()
    directory.tmp.touch()  # so that the replicas' own directory cannot be made
    roles = (Role(name="part", command=("true",), count=1),)
    workload = Workload(name="mine", roles=roles, leader="part")
    submission = workload_submission(workload, b"{}", PlanOptions(machine="cpu"))

    with pytest.raises(HostFault):
        Local(directory, submission, settings).submit()

    assert directory.tmp.is_file()


@pytest.mark.parametrize("kill", [False, True])
def test_a_part_is_stopped_though_no_order_to_it_can_be_written(host: Host, kill: bool) -> None:
    one = host.start(replica("part.0", ("sleep", "1000")))
    one.wait_running("part.0")
    one.directory.orders.mkdir()  # as where the disk is full
    workload = Workload(name="mine", roles=(Role(name="part", command=("true",), count=1),), leader="part")
    part = Local(one.directory, workload_submission(workload, b"{}", PlanOptions()), load_settings({}))
    assert part.cancel(kill=kill)
    assert one.wait_ended().state is JobState.CANCELLED
