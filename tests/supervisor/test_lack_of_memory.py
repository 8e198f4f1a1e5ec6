"""Replicas whose framework finds no memory: told apart by their log, and not restarted for ever."""

import pytest

from gpusched.model.status import ExitReason, JobState
from gpusched.supervisor.memory_errors import memory_that_ran_out
from tests.supervisor.host import Host
from tests.supervisor.specs import replica


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "device"),
        ("torch.OutOfMemoryError: HIP out of memory.", "device"),
        ("RuntimeError: CUDA out of memory.", "device"),
        ("tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node", "device"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while", "device"),
        ("failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "device"),
        ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 512 bytes", "device"),
        ("Traceback (most recent call last):\n  ...\nMemoryError\n", "host"),
        ("...\nnumpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 TiB", "host"),
        ("    except MemoryError:\nValueError: no", None),
        ("step 3, no MemoryError so far", None),
        ("", None),
    ],
)
def test_the_words_of_the_frameworks_are_known(output: str, expected: str | None) -> None:
    assert memory_that_ran_out(f"loading\n{output}\n".encode()) == expected


def test_a_replica_that_lacks_device_memory_is_told_apart_and_given_up_with_advice(host: Host) -> None:
    one = host.start(replica("actor.0", ("sh", "-c", "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1")))
    status = one.wait_ended()
    assert one.replica("actor.0").exit == ExitReason(kind="oom", code=1)
    assert one.replica("actor.0").restarts == 2
    assert status.message == (
        "actor.0 ran out of memory on its device, after 2 restarts: give actor more memory, or run fewer on one device"
    )


def test_a_replica_that_lacks_host_memory_says_whose(host: Host) -> None:
    one = host.start(replica("part.0", ("sh", "-c", "echo MemoryError; exit 1")))
    assert "part.0 ran out of the host's memory, after 2 restarts: the host has" in str(one.wait_ended().message)


def test_what_an_earlier_attempt_said_explains_no_later_end(host: Host) -> None:
    script = "test $GPUSCHED_ATTEMPT = 0 && echo CUDA out of memory; exit 3"
    one = host.start(replica("part.0", ("sh", "-c", script)))
    one.wait_ended()
    assert one.replica("part.0").exit == ExitReason(kind="crashed", code=3)
    assert one.directory.events.read_text().count('"kind":"oom"') == 1


def test_the_words_are_found_behind_much_other_output_and_only_at_its_end(host: Host) -> None:
    late = "yes | head -c 300000; echo CUDA out of memory; exit 1"
    early = "echo CUDA out of memory; yes | head -c 300000; exit 1"
    one = host.start(replica("late.0", ("sh", "-c", late)), replica("early.0", ("sh", "-c", early)))
    one.wait_ended()
    assert one.replica("late.0").exit == ExitReason(kind="oom", code=1)
    assert one.replica("early.0").exit == ExitReason(kind="crashed", code=1, message="y")


def test_a_replica_that_said_so_and_succeeded_has_succeeded(host: Host) -> None:
    one = host.start(replica("part.0", ("sh", "-c", "echo CUDA out of memory, with less then")))
    assert one.wait_ended().state is JobState.SUCCEEDED
