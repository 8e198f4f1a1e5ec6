"""A job that writes without end does not fill the disk: its supervisor cuts the log while it is written."""

from pathlib import Path

from gpusched.execution.job_logs import LogTail
from gpusched.execution.log_cut import HEAD, LogCut, read_cut
from tests.patience import until
from tests.supervisor.host import Host, Job
from tests.supervisor.specs import replica

SCRIPT = "head -c {first} /dev/zero | tr '\\0' '\\n'; until [ -e {flag} ]; do sleep 0.05; done; echo the last line"


def cut_of(one: Job) -> LogCut | None:
    with one.directory.log("actor.0").open("rb") as file:
        return read_cut(file.fileno())


def test_the_log_of_a_job_that_runs_is_cut_and_it_writes_on(host: Host, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    script = SCRIPT.format(first=10 * HEAD, flag=flag)
    one = host.start(replica("actor.0", ("sh", "-c", script)), log_cap_mib=4)
    until(lambda: cut_of(one) is not None, "the log is cut")
    flag.touch()
    assert one.wait_ended().message is None
    shown = b"".join(LogTail(one.directory.log("actor.0"), None).pieces())
    assert shown.startswith(b"--- actor.0, attempt 0, ")
    assert b"of this log were cut here" in shown
    assert shown.endswith(b"\nthe last line\n")
    assert len(shown) < 4 * HEAD


def test_a_log_that_grew_in_the_last_moment_is_cut_when_the_job_ends(host: Host) -> None:
    one = host.start(replica("actor.0", ("sh", "-c", f"head -c {10 * HEAD} /dev/zero | tr '\\0' '\\n'")), log_cap_mib=4)
    one.wait_ended()
    assert cut_of(one) is not None
