"""The API in a session of its own: silent, without signal handlers, from threads, and in a running event loop."""

import json

from tests.api.session import Session
from tests.cli.command import Command

M = "4x16GiB"

ALL_OF_IT = """
    import os, signal, sys
    handlers = [signal.getsignal(n) for n in range(1, 32)]
    wakeup = signal.set_wakeup_fd(-1)
    gpusched.plan(procs=3, machine=M)
    job = gpusched.launch(TOY, machine=M)
    queued = gpusched.run(["true"], num_gpus=0)
    repr(queued), str(queued), queued._repr_html_(), gpusched.status(), gpusched.jobs()
    queued.wait()
    list(job.logs()), job.stop(), job.wait()
    assert handlers == [signal.getsignal(n) for n in range(1, 32)]
    assert signal.set_wakeup_fd(-1) == wakeup == -1
"""

THREADS = """
    import json, threading
    from concurrent.futures import ThreadPoolExecutor
    barrier = threading.Barrier(2)
    def whole(_):
        barrier.wait()
        counts = gpusched.plan(procs=32, machine="p3.8xlarge").counts
        job, queued = gpusched.launch(TOY, machine=M), gpusched.run(["sh", "-c", "echo hi"], num_gpus=0)
        (job.run_dir / "end").touch()
        return job.id, counts, job.wait().state, queued.wait().state, list(queued.logs())[1:]
    with ThreadPoolExecutor(2) as pool:
        print(json.dumps(list(pool.map(whole, range(2)))))
"""

LOOP = """
    import asyncio, json
    async def main():
        ticks = 0
        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)
        ticking = asyncio.create_task(tick())
        counts = gpusched.plan(procs=32, machine="p3.8xlarge").counts
        job = gpusched.launch(TOY, machine=M)
        queued = await asyncio.to_thread(gpusched.run, ["sh", "-c", "echo hi"], num_gpus=0)
        (job.run_dir / "end").touch()
        before = ticks
        ends = await asyncio.gather(asyncio.to_thread(job.wait), asyncio.to_thread(queued.wait))
        process = await asyncio.create_subprocess_exec("true")  # asyncio's children and ours keep apart
        assert await process.wait() == 0
        ticking.cancel()
        assert ticks > before
        print(json.dumps([job.id, counts, *(end.state for end in ends), list(queued.logs())[1:]]))
    asyncio.run(main())
"""


def filled(code: str, command: Command, toy: str) -> str:
    return code.replace("TOY", repr(command.toy(toy))).replace("machine=M", f"machine={M!r}")


def test_nothing_is_printed_and_no_signal_handler_is_installed(command: Command, session: Session) -> None:
    assert session.run(filled(ALL_OF_IT, command, "for_ever.py")) == ""


def test_two_threads_at_once_get_what_one_gets(command: Command, session: Session) -> None:
    found = json.loads(session.run(filled(THREADS, command, "reports.py")))

    assert {one[0] for one in found} == {"toy-1", "toy-2"}
    assert [one[1:] for one in found] == 2 * [[[3, 10, 10, 10], "succeeded", "succeeded", ["hi"]]]


def test_a_running_event_loop_may_call_it_directly_and_by_threads(command: Command, session: Session) -> None:
    found = json.loads(session.run(filled(LOOP, command, "reports.py")))

    assert found == ["toy-1", [3, 10, 10, 10], "succeeded", "succeeded", ["hi"]]


def test_no_module_takes_the_place_of_a_name_of_the_api(session: Session) -> None:
    code = """
        import importlib, pkgutil
        for module in pkgutil.walk_packages(gpusched.__path__, "gpusched."):
            if not module.name.endswith(("__main__", "sitecustomize")) and ".template" not in module.name:
                importlib.import_module(module.name)
        for name in gpusched.__all__:
            assert callable(getattr(gpusched, name)), name
            assert name in dir(gpusched)
        print(len(gpusched.jobs()), len(gpusched.__all__))
    """

    assert session.run(code) == "0 14\n"


def test_the_types_of_the_arguments_are_those_that_help_shows(session: Session) -> None:
    printed = session.run("import inspect; print(inspect.signature(gpusched.run)); print(gpusched.plan.__doc__)")

    assert "fraction: float | str | None" in printed
    assert "priority: int = 0" in printed
    assert "Raises UsageError" in printed
