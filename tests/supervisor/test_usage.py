"""What a supervisor keeps of its replicas' use of the host: memory, CPU time, seconds; for each attempt."""

import sys
from pathlib import Path

from msgspec.structs import replace

from gpusched.model.plan import Replica, ReplicaSpec
from gpusched.model.status import JobState
from gpusched.model.workload import Restart
from gpusched.supervisor.usage_meter import UsageMeter
from tests.patience import until
from tests.supervisor.host import Host, Job, start

TAKES = """
import os, sys, time
block = bytearray(200 << 20)
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
child = os.fork()
if child == 0:
    own = bytearray(100 << 20)
print("here", flush=True)
sys.stdin.close()
time.sleep(600)
"""


def python(text: str) -> ReplicaSpec:
    what = Replica(name="command.0", role="command", rank=0)
    return ReplicaSpec(replica=what, argv=(sys.executable, "-c", text), env={}, cwd="/tmp")


def sampled(one: Job) -> bool:
    """Whether a sample was taken since all memory is used: the first, on a slow host, may be earlier."""
    usage = one.replica("command.0").usage
    return bool(usage) and (usage[-1].host_mib or 0) >= 300


def test_memory_of_all_processes_counts_once_and_time_goes_on_while_it_runs(host: Host) -> None:
    one = host.start(python(TAKES))
    one.wait_output("command.0", "here", times=2)
    until(lambda: sampled(one), "a sample was taken")
    (usage,) = one.replica("command.0").usage
    assert usage.host_mib is not None
    assert usage.host_mib < 500, "what is shared by both processes counts once"
    assert usage.seconds >= 4
    assert usage.cpu_s is not None
    one.stop()
    (last,) = one.wait_ended().replicas[0].usage
    assert last.host_mib is not None
    assert (last.host_mib >= usage.host_mib, last.attempt) == (True, 0)
    assert last.seconds >= usage.seconds
    assert last.cpu_s is not None
    assert last.cpu_s >= 0.3


def test_each_attempt_is_kept(host: Host) -> None:
    restart = {"command": Restart(policy="on-failure", max=1)}
    over = host.start(python("raise SystemExit(3)"), restart=restart).wait_ended()
    assert over.state is JobState.FAILED
    usage = over.replicas[0].usage
    assert [each.attempt for each in usage] == [0, 1]
    assert all(each.host_mib is None for each in usage), "they ended before a sample"
    assert all(each.cpu_s is not None and each.cpu_s > 0 for each in usage)


def test_what_frameworks_have_counted_is_in_the_usage(host: Host) -> None:
    text = (
        "import json, os, pathlib\n"
        "path = pathlib.Path(os.environ['GPUSCHED_RUN_DIR'], 'memory')\npath.mkdir()\n"
        "one = {'framework': 'torch', 'version': '2.13.0', 'peak_mib': 300, 'pool_mib': 512}\n"
        "(path / f'command.0.0.{os.getpid()}.json').write_text(json.dumps([one]))"
    )
    spec = python(text)
    one = host.prepare(spec)
    directory = str(one.directory.path)
    with_place = replace(spec, env={"GPUSCHED_RUN_DIR": directory})
    one.directory.write_spec(replace(one.directory.read_spec(), replicas=(with_place,)))
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    (usage,) = one.wait_ended().replicas[0].usage
    assert (usage.framework, usage.framework_version, usage.peak_mib, usage.pool_mib) == ("torch", "2.13.0", 300, 512)


def test_of_many_attempts_the_latest_are_kept(tmp_path: Path) -> None:
    meter, command = UsageMeter(tmp_path), Replica(name="command.0", role="command", rank=0)
    for attempt in range(25):
        meter.started(command, 4711, attempt, attempt)
        meter.ended(4711, 0.5, attempt + 0.75)
    assert [usage.attempt for usage in meter.usage(25.0)["command.0"]] == [22, 23, 24]
    assert {(usage.seconds, usage.cpu_s) for usage in meter.kept["command.0"]} == {(0.75, 0.5)}
    assert meter.poll(30.0) is False
    assert meter.due is None


def test_each_replica_is_sampled_five_seconds_after_its_own_start(tmp_path: Path) -> None:
    meter = UsageMeter(tmp_path)
    meter.started(Replica(name="actor.0", role="actor", rank=0), 4711, 0, 0.0)
    meter.started(Replica(name="actor.1", role="actor", rank=1), 4712, 0, 4.0)
    assert meter.due == 5.0
    assert meter.poll(5.0)
    assert meter.due == 9.0
    assert meter.poll(9.0)
    assert meter.due == 65.0
    meter.ended(4711, 0.0, 10.0)
    assert meter.due == 69.0
