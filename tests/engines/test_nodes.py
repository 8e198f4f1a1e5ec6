"""What nodes tell, written down and shown as one job."""

import os
from pathlib import Path

import msgspec
import pytest

from gpusched.engines.cluster.node_recorder import NodeRecorder, announce
from gpusched.execution.directory import JobDirectory, complete
from gpusched.execution.log_cut import HEAD, read_cut
from gpusched.execution.nodes import (
    call_silent,
    learner_directory,
    merge_node_status,
    node_file,
    read_nodes,
    write_engine_note,
)
from gpusched.model.cluster_job import LogPart, NodeMessage, NodeStatus, ProgressLine, Refused
from gpusched.model.status import ExitReason, JobState, JobStatus, ReplicaState, ReplicaStatus
from tests.engines.groups import a_group
from tests.supervisor.specs import job, replica


def a_node(*names: str, state: JobState = JobState.RUNNING) -> JobStatus:
    replicas = tuple(ReplicaStatus(name=name, role="actor", state=ReplicaState.RUNNING, pid=7) for name in names)
    return JobStatus(id="toy-1", workload="toy", state=state, counts=(), replicas=replicas, run_dir="/elsewhere")


def a_job(path: Path, state: JobState = JobState.RUNNING, engine: str | None = "slurm") -> JobStatus:
    own = ReplicaStatus(name="slurm.0", role="slurm", state=ReplicaState.RUNNING)
    return JobStatus(
        id="toy-1", workload="toy", state=state, counts=(), replicas=(own,), run_dir=str(path), engine=engine
    )


def hear(ledger: NodeRecorder, *told: NodeMessage, before: bytes = b"") -> bool:
    """Have the ledger hear a node that says this and ends."""
    reader, writer = os.pipe()
    os.write(writer, before + b"".join(msgspec.json.encode(one) + b"\n" for one in told))
    os.close(writer)
    try:
        return ledger.receive(reader, 5)
    finally:
        os.close(reader)


def a_directory(tmp_path: Path) -> Path:
    complete(JobDirectory(tmp_path))
    return tmp_path


def test_the_replicas_of_all_nodes_are_those_of_the_job(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as one, NodeRecorder(job, 1, 1) as other:
        hear(one, NodeStatus(host="n1", status=a_node("learner.0", "actor.0")))
        hear(other, NodeStatus(host="n2", status=a_node("actor.1")))
        shown = merge_node_status(a_job(job))
    assert [(one.name, one.node) for one in shown.replicas] == [
        ("learner.0", "n1"),
        ("actor.0", "n1"),
        ("actor.1", "n2"),
    ]
    assert shown.replicas[0].log == str(job / "logs" / "learner.0.log")


def test_of_files_that_a_job_has_grown_32_mib_are_read_in_all(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    for number in range(10):
        status = msgspec.structs.replace(a_node(f"actor.{number}"), message="x" * (6 << 20))
        node_file(job, number).parent.mkdir(exist_ok=True)
        node_file(job, number).write_bytes(msgspec.json.encode(NodeStatus(host="n1", status=status)))
    shown = [one.name for one in merge_node_status(a_job(job)).replicas]
    assert shown == [f"actor.{number}" for number in range(5)]
    assert len(read_nodes(job)) == 5


def test_what_replicas_write_and_report_lies_where_that_of_a_local_job_lies(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, LogPart(replica="actor.3", text="a\n"), LogPart(replica="actor.3", text="b\n"))
        hear(ledger, ProgressLine(line='{"step": 1}'))
    assert (job / "logs" / "actor.3.log").read_text() == "a\nb\n"
    assert (job / "progress.jsonl").read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("emptied", [False, True])
def test_what_nodes_write_is_cut_where_it_is_more_than_a_log_may_hold(tmp_path: Path, emptied: bool) -> None:
    directory = JobDirectory(a_directory(tmp_path))
    directory.write_spec(msgspec.structs.replace(job(replica("actor.3")), log_cap_mib=4))
    with NodeRecorder(tmp_path, 0, 1) as ledger:
        for mib in (15, 9) if emptied else (9,):
            directory.log("actor.3").write_bytes(b"")
            for _ in range(mib * HEAD // (1 << 16)):
                ledger.take(LogPart(replica="actor.3", text="x" * 65_535 + "\n"))
    with directory.log("actor.3").open("rb") as file:
        assert read_cut(file.fileno()) is not None
    assert directory.log("actor.3").stat().st_blocks * 512 <= 4 * HEAD


def test_a_node_cannot_write_outside_of_the_logs(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    job = a_directory(tmp_path / "job")
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, LogPart(replica="../../evil", text="a\n"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]
    assert (job / "logs" / "evil.log").exists()


def test_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, Refused(message="no GPU"), before=b'slurmstepd: hello\n{"type": 3}\n\n\xff\n')
        assert ledger.refused == Refused(message="no GPU")


def test_a_node_that_left_no_last_word_is_shown_as_lost(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 1, 1) as ledger:
        hear(ledger, NodeStatus(host="n2", status=a_node("actor.1")))
    shown = merge_node_status(a_job(job)).replicas[0]
    assert (shown.state, shown.exit, shown.pid) == (ReplicaState.EXITED, ExitReason(kind="lost"), None)


def test_keys_that_a_killed_node_left_are_removed(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    key = learner_directory(job) / "keys.1" / "server.key"
    key.parent.mkdir(parents=True)
    key.touch()
    with NodeRecorder(job, 1, 1):
        pass
    assert key.exists()
    with NodeRecorder(job, 0, 1):
        pass
    assert not key.exists()


def test_a_last_word_of_a_node_is_kept(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, NodeStatus(host="n1", status=a_node("learner.0", state=JobState.SUCCEEDED)))
        assert ledger.state is JobState.SUCCEEDED
    assert merge_node_status(a_job(job)).replicas[0].state is ReplicaState.RUNNING


def test_until_a_node_tells_something_the_job_starts_and_its_note_is_what_the_cluster_says(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    write_engine_note(job, "Slurm job 3 is PENDING (Resources)")
    shown = merge_node_status(a_job(job))
    assert (shown.state, shown.note) == (JobState.STARTING, "Slurm job 3 is PENDING (Resources)")


def test_before_any_node_has_begun_all_replicas_are_there_and_wait(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    announce(JobDirectory(job), a_group())
    write_engine_note(job, "Slurm job 3 is PENDING (Resources)")
    shown = merge_node_status(a_job(job))
    assert [one.name for one in shown.replicas] == ["learner.0", *(f"actor.{rank}" for rank in range(8))]
    assert {one.state for one in shown.replicas} == {ReplicaState.PENDING}
    assert (shown.state, shown.note) == (JobState.STARTING, "Slurm job 3 is PENDING (Resources)")


def test_when_the_job_is_over_no_replica_is_shown_as_running_that_its_node_left_so(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    announce(JobDirectory(job), a_group())
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, NodeStatus(host="n1", status=a_node("learner.0")))
        shown = merge_node_status(a_job(job, JobState.CANCELLED))
    assert {(one.state, one.pid) for one in shown.replicas} == {(ReplicaState.EXITED, None)}


def test_a_job_that_failed_says_why_in_its_clusters_words(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    own = msgspec.structs.replace(a_job(job).replicas[0], state=ReplicaState.FAILED)
    failed = msgspec.structs.replace(
        a_job(job, JobState.FAILED), message="slurm.0 crashed with code 1", replicas=(own,)
    )
    assert merge_node_status(failed).message == "slurm.0 crashed with code 1", "it left no word"
    write_engine_note(job, "Slurm job 3 is FAILED; n1: 1 learner does not fit", last=True)
    assert merge_node_status(failed).message == "Slurm job 3 is FAILED; n1: 1 learner does not fit"
    assert merge_node_status(a_job(job, JobState.CANCELLED)).message == a_job(job, JobState.CANCELLED).message


def test_a_job_whose_learner_failed_says_so_and_not_that_what_saw_to_it_here_did(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    write_engine_note(job, "Slurm job 3 is FAILED")
    crashed = ExitReason(kind="crashed", code=3)
    part = a_node("learner.0", state=JobState.FAILED)
    failed = msgspec.structs.replace(part.replicas[0], state=ReplicaState.FAILED, exit=crashed)
    with NodeRecorder(job, 0, 1) as ledger:
        part = msgspec.structs.replace(part, message="learner.0 crashed with code 3", replicas=(failed,))
        hear(ledger, NodeStatus(host="n1", status=part))
    own = msgspec.structs.replace(
        a_job(job).replicas[0], state=ReplicaState.FAILED, exit=ExitReason(kind="crashed", code=1)
    )
    shown = merge_node_status(msgspec.structs.replace(a_job(job, JobState.FAILED), replicas=(own,)))
    assert shown.message == "learner.0 crashed with code 3"
    limited = msgspec.structs.replace(a_job(job, JobState.FAILED), message="its time limit of 2 h is over")
    (job / "nodes" / "0.json").unlink()
    write_engine_note(job, "Slurm job 3 is CANCELLED", last=True)
    assert merge_node_status(limited).message == "its time limit of 2 h is over", "it was not the cluster that ended it"
    assert [(one.name, one.exit) for one in shown.replicas] == [("learner.0", crashed)]


def test_nodes_of_which_nothing_is_heard_are_not_shown_as_running(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, NodeStatus(host="n1", status=a_node("learner.0")))
        call_silent(job, silent=True)
        write_engine_note(job, "its first node is silent for 45 s")
        shown = merge_node_status(a_job(job))
        assert {one.state for one in shown.replicas} == {ReplicaState.EXITED}
        assert (shown.state, shown.note) == (JobState.RUNNING, "its first node is silent for 45 s")
        call_silent(job, silent=False)
        assert merge_node_status(a_job(job)).replicas[0].state is ReplicaState.RUNNING


def test_what_a_later_incarnation_has_told_is_not_overwritten_by_one_of_a_node_that_was_cut_off(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    keys = [learner_directory(job) / f"keys.{incarnation}" for incarnation in (1, 2)]
    for one in keys:
        one.mkdir(parents=True)
    with NodeRecorder(job, 0, 1) as late:
        hear(late, NodeStatus(host="n1", status=a_node("learner.0")))
        with NodeRecorder(job, 0, 2) as ledger:
            again = msgspec.structs.replace(a_node("learner.0"), attempt=1)
            hear(ledger, NodeStatus(host="n2", status=again))
            hear(late, NodeStatus(host="n1", status=a_node("learner.0", state=JobState.CANCELLED)))
            late.__exit__()
            assert [one.node for one in merge_node_status(a_job(job)).replicas] == ["n2"]
            assert [one.exists() for one in keys] == [False, True]
    assert not keys[1].exists()


def test_a_job_of_this_host_is_left_as_it_is(tmp_path: Path) -> None:
    job = a_directory(tmp_path)
    with NodeRecorder(job, 0, 1) as ledger:
        hear(ledger, NodeStatus(host="n1", status=a_node("learner.0")))
        assert merge_node_status(a_job(job, engine=None)) == a_job(job, engine=None)


def test_a_node_that_fell_silent_is_not_waited_for(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"\n")
    with NodeRecorder(a_directory(tmp_path), 0, 1) as ledger:
        assert not ledger.receive(reader, 0.05)
    os.close(reader)
    os.close(writer)
