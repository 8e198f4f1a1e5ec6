"""The workload file: every kind of mistake is told with the file, the key and the fix."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpusched.errors import WorkloadError
from gpusched.model.workload import Memory, Restart, Role, Workload
from gpusched.model.workload_file import parse_workload

PATH = Path("/home/me/snake/workload.toml")
ROLE = '[roles.actor]\ncommand = ["python", "actor.py"]\n'


def parse(text: str, path: Path = PATH) -> Workload:
    return parse_workload(tomllib.loads(text), path)


def test_the_file_of_the_design_is_read_whole() -> None:
    workload = parse("""
        name = "snake"
        [roles.learner]
        command = ["{python}", "-m", "workloads.snake.learner"]
        memory = { min = "2GiB", share = 0.75 }
        restart = { policy = "on-failure", max = 3 }
        [roles.actor]
        count = 32
        command = ["{python}", "-m", "workloads.snake.actor"]
        memory = { min = "512MiB" }
        restart = { policy = "always", max = 5 }
        threads = 2
        [job]
        leader = "learner"
        preload = ["tensorflow"]
        settings = "workloads.snake.settings:Settings"
        stop_grace = 2.5
        requeue = true
    """)
    assert workload == Workload(
        name="snake",
        roles=(
            Role(
                name="learner",
                command=("{python}", "-m", "workloads.snake.learner"),
                memory=Memory(min_mib=2048, share=7500),
            ),
            Role(
                name="actor",
                command=("{python}", "-m", "workloads.snake.actor"),
                count=32,
                memory=Memory(min_mib=512),
                restart=Restart(policy="always", max=5),
                threads=2,
            ),
        ),
        leader="learner",
        preload=("tensorflow",),
        settings="workloads.snake.settings:Settings",
        stop_grace_s=2.5,
        requeue=True,
        path=PATH,
    )


def test_a_role_may_ask_for_at_least_so_many_threads() -> None:
    actor = parse(ROLE + "threads = { min = 2 }").role("actor")
    assert (actor.threads, actor.least_threads) == (None, 2)


def test_one_command_is_enough() -> None:
    workload = parse(ROLE)
    assert workload.name == "snake", "the directory's name"
    assert workload.role("actor") == Role(name="actor", command=("python", "actor.py"))
    assert (workload.leader, workload.preload, workload.stop_grace_s) == (None, (), 10.0)
    with pytest.raises(KeyError):
        workload.role("learner")


MISTAKES = {
    "unknown key at the top": ('colour = "red"\n' + ROLE, "colour is not a known key", "name, roles, job"),
    "unknown key of a role": (ROLE + "gpus = 1", "roles.actor.gpus is not a known key", "command, count"),
    "unknown key of memory": (
        ROLE + 'memory = { min = "1GiB", most = 2 }',
        "roles.actor.memory.most",
        "min, share, max, unless",
    ),
    "a maximum without a unit": (
        ROLE + 'memory = { min = "1GiB", max = 2 }',
        "roles.actor.memory.max",
        "512MiB, 2GiB",
    ),
    "a maximum below the minimum": (
        ROLE + 'memory = { min = "1GiB", max = "1000MiB" }',
        "roles.actor.memory.max is 1000 MiB, less than min, 1024 MiB",
        "give a larger max",
    ),
    "unknown key of restart": (ROLE + "restart = { times = 2 }", "roles.actor.restart.times", "policy, max"),
    "unknown key of job": (ROLE + "[job]\nboss = 1", "job.boss is not a known key", "leader, preload"),
    "no roles": ('name = "x"', "roles is missing", "[roles]"),
    "empty roles": ("[roles]", "roles has no role", "[roles.learner]"),
    "roles is a list": ("roles = []", "roles is [], not a table", "[roles]"),
    "role is a number": ("[roles]\nactor = 3", "roles.actor is 3, not a table", "[roles.actor]"),
    "name of a role": ('[roles."Actor 1"]\ncommand = ["a"]', "roles.Actor 1 is not a name for a role", "lower-case"),
    "name is no name": ('name = "My Job"\n' + ROLE, "name is 'My Job'", "lower-case"),
    "name is a number": ("name = 3\n" + ROLE, "name is 3, not a text", 'name = "..."'),
    "name is too long": (f'name = "{"x" * 33}"\n' + ROLE, "name is 'xxx", "at most 32"),
    "no command": ("[roles.actor]\ncount = 2", "roles.actor.command is missing or empty", "{python}"),
    "empty command": ("[roles.actor]\ncommand = []", "roles.actor.command is missing or empty", "{python}"),
    "command is a text": ('[roles.actor]\ncommand = "python a.py"', "not a list of texts", 'command = ["...", "..."]'),
    "command has a number": ('[roles.actor]\ncommand = ["a", 1]', "roles.actor.command", 'command = ["...", "..."]'),
    "command has an empty text": ('[roles.actor]\ncommand = [""]', "roles.actor.command", 'command = ["...", "..."]'),
    "count is negative": (ROLE + "count = -1", "roles.actor.count is -1", "from 0 to 100000"),
    "count is huge": (ROLE + "count = 1000000", "roles.actor.count is 1000000", "from 0 to 100000"),
    "count is a text": (ROLE + 'count = "4"', "roles.actor.count is '4'", "whole number"),
    "count is a fraction": (ROLE + "count = 1.5", "roles.actor.count is 1.5", "whole number"),
    "count is true": (ROLE + "count = true", "roles.actor.count is True", "whole number"),
    "threads are none": (ROLE + "threads = 0", "roles.actor.threads is 0", "from 1 to 1024"),
    "least threads are none": (ROLE + "threads = { min = 0 }", "roles.actor.threads.min is 0", "from 1 to 1024"),
    "threads without a number": (ROLE + "threads = {}", "roles.actor.threads.min is missing", "min = 2"),
    "most threads": (ROLE + "threads = { max = 4 }", "roles.actor.threads.max is not a known key", "known here: min"),
    "memory is a text": (ROLE + 'memory = "2GiB"', "roles.actor.memory is '2GiB', not a table", "[roles.actor.memory]"),
    "memory has no min": (ROLE + "memory = { share = 0.5 }", "roles.actor.memory.min is missing", 'min = "512MiB"'),
    "memory without a unit": (ROLE + 'memory = { min = "512" }', "roles.actor.memory.min: '512'", "512MiB"),
    "memory of no unit": (ROLE + 'memory = { min = "12 XiB" }', "roles.actor.memory.min: '12 XiB'", "512MiB"),
    "memory is a number": (ROLE + "memory = { min = 512 }", "roles.actor.memory.min: 512", "512MiB"),
    "memory is nothing": (ROLE + 'memory = { min = "0MiB" }', "roles.actor.memory.min: '0MiB'", "512MiB"),
    "share is above one": (ROLE + 'memory = { min = "1GiB", share = 1.5 }', "memory.share: 1.5", "such as 0.75"),
    "share is NaN": (ROLE + 'memory = { min = "1GiB", share = nan }', "memory.share: nan", "such as 0.75"),
    "share is a text": (ROLE + 'memory = { min = "1GiB", share = "75%" }', "memory.share: '75%'", "such as 0.75"),
    "unless is a text": (
        ROLE + 'memory = { min = "1GiB", unless = "inference" }',
        "roles.actor.memory.unless is 'inference', not a table",
        "[roles.actor.memory.unless]",
    ),
    "unless is empty": (ROLE + 'memory = { min = "1GiB", unless = {} }', "memory.unless is empty", "inference ="),
    "unless has a list": (
        ROLE + 'memory = { min = "1GiB", unless = { inference = ["a", "b"] } }',
        "roles.actor.memory.unless.inference is ['a', 'b']",
        "one text, number",
    ),
    "unless without settings": (
        ROLE + 'memory = { min = "1GiB", unless = { inference = "learner" } }',
        "job.settings is missing, and `when` or `unless` names",
        "my.module:Settings",
    ),
    "when without settings": (ROLE + "when = { watch = true }", "job.settings is missing", "my.module:Settings"),
    "when is empty": (ROLE + "when = {}", "roles.actor.when is empty", "inference ="),
    "the leader is there under a condition": (
        ROLE + 'when = { watch = true }\n[job]\nleader = "actor"\nsettings = "my.settings:Settings"',
        "job.leader 'actor' may be absent",
        "leave out roles.actor.when",
    ),
    "devices are none": (ROLE + "devices = 0", "roles.actor.devices is 0", 'from 1 to 1024, or "all"'),
    "devices are a text": (ROLE + 'devices = "two"', "roles.actor.devices is 'two'", 'from 1 to 1024, or "all"'),
    "devices are true": (ROLE + "devices = true", "roles.actor.devices is True", "whole number"),
    "devices beside memory": (
        ROLE + 'devices = 1\nmemory = { min = "1GiB" }',
        "roles.actor.devices stands beside memory",
        "`devices` for whole GPUs, or `memory`",
    ),
    "restart is a text": (ROLE + 'restart = "always"', "roles.actor.restart is 'always'", "[roles.actor.restart]"),
    "policy is unknown": (
        ROLE + 'restart = { policy = "maybe" }',
        "restart.policy is 'maybe'",
        "never, on-signal, on-failure, always",
    ),
    "policy is a number": (ROLE + "restart = { policy = 1 }", "roles.actor.restart.policy is 1", 'policy = "..."'),
    "restarts are negative": (ROLE + "restart = { max = -1 }", "roles.actor.restart.max is -1", "from 0 to"),
    "job is a list": ("job = [1]\n" + ROLE, "job is [1], not a table", "[job]"),
    "leader is no role": (ROLE + '[job]\nleader = "boss"', "job.leader 'boss' is not a role", "name one of: actor"),
    "leader has no replica": (
        ROLE + '[roles.boss]\ncommand = ["b"]\ncount = 0\n[job]\nleader = "boss"',
        "job.leader 'boss' is not a role with a replica",
        "name one of: actor",
    ),
    "leader is a list": (ROLE + '[job]\nleader = ["actor"]', "job.leader is ['actor'], not a text", 'leader = "..."'),
    "preload is a text": (ROLE + '[job]\npreload = "numpy"', "job.preload is 'numpy'", 'preload = ["...", "..."]'),
    "settings is no class": (
        ROLE + '[job]\nsettings = "my.module"',
        "job.settings is 'my.module'",
        "my.module:Settings",
    ),
    "settings is a number": (ROLE + "[job]\nsettings = 4", "job.settings is 4", 'settings = "..."'),
    "grace is negative": (ROLE + "[job]\nstop_grace = -1", "job.stop_grace is -1", "from 0.1 to 3600"),
    "grace is NaN": (ROLE + "[job]\nstop_grace = nan", "job.stop_grace is nan", "from 0.1 to 3600"),
    "a slip in a placeholder": (
        '[roles.a]\ncommand = ["{pyton}", "x.py"]',
        "roles.a.command has {pyton}, which stands for nothing",
        "did you mean {python}?",
    ),
    "an unknown placeholder": (
        '[roles.a]\ncommand = ["sh", "-c", "echo ${HOME} {rank}"]',
        "roles.a.command has {rank}",
        "double the braces: {{rank}}",
    ),
    "listen is a word": (ROLE + '[job]\nlisten = "no"', "job.listen is 'no'", "true or false"),
    "listen with an unknown key": (
        ROLE + "[job]\nlisten = { when = 1 }",
        "job.listen.when is not a known key",
        "known here: unless",
    ),
    "requeue is a number": (ROLE + "[job]\nrequeue = 1", "job.requeue is 1", "true or false"),
    "grace is a text": (ROLE + '[job]\nstop_grace = "10s"', "job.stop_grace is '10s'", "from 0.1 to 3600"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_the_file_the_key_and_the_fix(mistake: str) -> None:
    text, said, fix = MISTAKES[mistake]
    with pytest.raises(WorkloadError) as caught:
        parse(text)
    assert caught.value.message.startswith(f"{PATH}: ")
    assert said in caught.value.message
    assert fix in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_role_may_ask_for_whole_devices() -> None:
    assert parse(ROLE + "devices = 2").role("actor").devices == 2
    assert parse(ROLE + 'devices = "all"').role("actor").devices == "all"
    assert (parse(ROLE).role("actor").devices, parse(ROLE).role("actor").memory) == (None, None)


UNLESS = f"""
    {ROLE.strip()}
    memory = {{ min = "512MiB", unless = {{ inference = "learner", deep = true }} }}
    [roles.learner]
    command = ["python", "learner.py"]
    memory = {{ min = "2GiB" }}
    [job]
    settings = "my.settings:Settings"
"""


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({"inference": "learner", "deep": True}, None),
        ({"inference": "learner", "deep": True, "more": [1]}, None),
        ({"inference": "actor", "deep": True}, Memory(min_mib=512)),
        ({"inference": "learner", "deep": False}, Memory(min_mib=512)),
        ({"inference": "learner"}, Memory(min_mib=512)),
        ({}, Memory(min_mib=512)),
    ],
)
def test_a_role_needs_no_device_while_all_of_its_conditions_hold(
    settings: dict[str, object], needs: Memory | None
) -> None:
    workload = parse(UNLESS)
    assert workload.conditional
    under = workload.under(settings)
    assert (under.role("actor").memory, under.role("learner").memory) == (needs, Memory(min_mib=2048))
    assert not under.conditional
    assert [role.low_cpu for role in under.roles] == [needs is None, False]


def test_a_role_is_there_only_while_all_of_its_conditions_hold() -> None:
    workload = parse(UNLESS.replace("[roles.learner]", 'when = { game = "snake", watch = true }\n[roles.learner]'))
    for settings in ({"game": "snake"}, {"game": "go", "watch": True}, {}):
        assert [role.name for role in workload.under(settings).roles] == ["learner"]
    under = workload.under({"game": "snake", "watch": True})
    assert [role.name for role in under.roles] == ["actor", "learner"]
    assert workload.conditional
    assert not under.conditional


def test_a_workload_with_conditions_travels_and_can_be_looked_up_by() -> None:
    workload = parse(UNLESS)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(replace(workload, path=None)), type=Workload) == replace(
        workload, path=None
    )
    assert hash(workload.role("actor").memory) is not None


def test_a_directory_whose_name_cannot_be_a_jobs_asks_for_a_name() -> None:
    with pytest.raises(WorkloadError, match="name is 'My Game'"):
        parse(ROLE, Path("/home/me/My Game/workload.toml"))


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.parent.parent.glob("workloads/*/workload.toml")), ids=str)
def test_the_workloads_that_come_with_it_are_right(path: Path) -> None:
    assert parse(path.read_text(), path).name == path.parent.name


LISTEN = f"""
    {ROLE.strip()}
    [job]
    settings = "my.settings:Settings"
    listen = {{ unless = {{ scheme = "average" }} }}
"""


def test_a_workload_can_say_that_it_takes_no_actors_of_other_hosts_and_with_which_settings() -> None:
    assert parse(ROLE).listen
    assert not parse(ROLE + "[job]\nlisten = false").under({}).listen
    workload = parse(LISTEN)
    assert workload.conditional
    assert workload.under({"scheme": "central"}).listen
    assert not workload.under({"scheme": "average"}).listen
