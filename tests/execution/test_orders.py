"""Orders to a supervisor that runs: what is written, what is read, what it does."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault, NotFound
from gpusched.execution.orders import Order, OverrunOrder, StopOrder, end_of, give, read_new
from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.model.workload import Restart
from tests.patience import until
from tests.supervisor.host import Host, Job
from tests.supervisor.specs import python, replica

STAY = ("sleep", "1000")


def overrun(one: Job, name: str, *, restart: bool, message: str = "uses 2100 of its 1500 MiB") -> OverrunOrder:
    return OverrunOrder(replica=name, pid=one.replica(name).pid or 0, message=message, restart=restart)


def test_orders_are_read_once_and_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    assert read_new(path, 0) == ([], 0)
    path.write_text('{"order":"stop","message":"a","kill":false}\n{"order":"stop","message":"b","kill":true}\n')
    orders, position = read_new(path, 0)
    assert orders == [StopOrder(message="a"), StopOrder(message="b", kill=True)]
    assert position == path.stat().st_size == end_of(path)
    assert read_new(path, position) == ([], position)
    with path.open("a") as file:
        file.write('{"order":"overrun","replica":"actor.3","pid":7,"message":"m","restart":true}\n')
    assert read_new(path, position)[0] == [OverrunOrder(replica="actor.3", pid=7, message="m", restart=True)]


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"order":"stop"}\n{"order":"st')
    orders, position = read_new(path, 0)
    assert orders == [StopOrder()]
    with path.open("a") as file:
        file.write('op","kill":true}\n')
    assert read_new(path, position)[0] == [StopOrder(kill=True)]


@pytest.mark.parametrize(
    "garbage",
    [b"x", b"[]", b'{"order":"dance"}', b'{"order":"stop","kill":"yes"}', b"\xff\xfe", b"[" * 9000, b"y" * 200_000],
)
def test_garbage_is_told_and_hides_no_order(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"\n\n" + garbage + b'\n{"order":"stop"}\n')
    told: list[str] = []
    assert read_new(path, 0, told.append) == ([StopOrder()], path.stat().st_size)
    assert told
    assert str(path) in told[0]


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"order":"stop"}\n')
    assert read_new(path, 1000)[0] == [StopOrder()]


@pytest.mark.parametrize("kill", [False, True])
def test_a_stop_order_stops_the_job_and_says_who_wanted_it(host: Host, kill: bool) -> None:
    one = host.start(replica("stubborn.0", python("ignore_term.py")), stop_grace_s=3600.0 if kill else 0.3)
    one.wait_output("stubborn.0", "deaf\n")
    give(one.status, StopOrder(message="stopped by anna", kill=kill))
    status = one.wait_ended()
    assert status.state is JobState.CANCELLED
    assert str(status.message).partition(";")[0] == "stopped by anna"
    with pytest.raises(NotFound, match="is not running: it is cancelled"):
        give(status, StopOrder())
    one.wait_gone()


def test_an_order_is_obeyed_though_its_signal_was_lost(host: Host) -> None:
    one = host.start(replica("part.0", STAY), replica("part.1", STAY))
    victim = one.wait_running("part.1")
    one.directory.orders.write_bytes(msgspec.json.encode(StopOrder(message="enough")) + b"\n")
    os.kill(victim, signal.SIGKILL)  # whatever wakes the supervisor
    assert one.wait_ended().message == "enough"


def test_orders_for_an_earlier_attempt_are_not_obeyed(host: Host) -> None:
    one = host.prepare(replica("part.0", ("sh", "-c", "until [ -e $TMPDIR/go ]; do sleep 0.02; done")))
    one.directory.orders.write_text('{"order":"stop"}\n')
    host.launch(one)
    one.wait_running("part.0")
    os.kill(one.supervisor, signal.SIGHUP)
    (one.directory.tmp / "go").touch()
    assert one.wait_ended().state is JobState.SUCCEEDED


def test_garbage_is_told_once_in_the_supervisors_log(host: Host) -> None:
    one = host.start(replica("part.0", STAY))
    one.wait_running("part.0")
    one.directory.orders.write_text("garbage\n" * 100)
    give(one.status, StopOrder())
    assert one.wait_ended().state is JobState.CANCELLED
    assert one.directory.supervisor_log.read_text().count("a line that is no order") == 1


def test_an_order_that_cannot_be_written_is_the_hosts_fault(host: Host) -> None:
    one = host.start(replica("part.0", STAY))
    one.directory.orders.mkdir()
    with pytest.raises(
        HostFault, match=f"cannot give an order to {one.status.id}: .*not a file of ours, but a directory"
    ):
        give(one.status, StopOrder())


def test_a_warning_is_shown_and_taken_back_and_the_replica_goes_on(host: Host) -> None:
    one = host.start(replica("part.0", STAY), replica("other.0", STAY))
    pid = one.wait_running("part.0")
    give(one.status, overrun(one, "part.0", restart=False))
    until(lambda: one.replica("part.0").warning == "uses 2100 of its 1500 MiB", "the warning is shown")
    assert "part.0: uses 2100 of its 1500 MiB" in one.directory.supervisor_log.read_text()
    assert "--- part.0: uses 2100 of its 1500 MiB ---" in one.output("part.0")
    give(one.status, overrun(one, "part.0", restart=False, message=""))
    until(lambda: one.replica("part.0").warning is None, "the warning is taken back")
    assert (one.replica("part.0").pid, one.replica("other.0").warning) == (pid, None)


def test_an_overrun_restarts_the_replica_that_does_not_listen_and_no_other(host: Host) -> None:
    one = host.start(replica("part.0", python("ignore_term.py")), replica("other.0", STAY))
    one.wait_output("part.0", "deaf\n")
    before, other = one.wait_running("part.0"), one.wait_running("other.0")
    give(one.status, overrun(one, "part.0", restart=True))
    assert one.wait_running("part.0", restarts=1) != before
    assert one.replica("other.0").pid == other
    assert one.events("part.0")[-6:] == ["running", "stopping", "stopping", "backoff", "starting", "running"]
    told = one.directory.events.read_text()
    assert '"exit":{"kind":"overrun","code":null,"signal":null,"message":"uses 2100 of its 1500 MiB"}' in told


@pytest.mark.parametrize("changes", [{"pid": 1}, {"replica": "nobody.7"}])
def test_an_overrun_of_a_process_that_is_gone_is_nothing(host: Host, changes: dict[str, object]) -> None:
    one = host.start(replica("part.0", STAY))
    pid = one.wait_running("part.0")
    wrong: Order = msgspec.structs.replace(overrun(one, "part.0", restart=True), **changes)
    give(one.status, wrong)
    give(one.status, overrun(one, "part.0", restart=False, message="m"))
    until(lambda: one.replica("part.0").warning == "m", "the second order was obeyed")
    assert one.replica("part.0").pid == pid


def test_a_replica_that_may_not_be_restarted_fails_by_its_overrun(host: Host) -> None:
    one = host.start(replica("part.0", STAY), restart={"part": Restart(policy="never")})
    one.wait_running("part.0")
    give(one.status, overrun(one, "part.0", restart=True))
    status = one.wait_ended()
    assert status.state is JobState.FAILED
    assert status.message == (
        "part.0 stopped because it uses 2100 of its 1500 MiB: give part more memory, or run fewer on one device"
    )
    (part,) = status.replicas
    assert (part.state, part.exit) == (
        ReplicaState.FAILED,
        ExitReason(kind="overrun", message="uses 2100 of its 1500 MiB"),
    )
    assert part.warning == "give part more memory, or run fewer on one device"
