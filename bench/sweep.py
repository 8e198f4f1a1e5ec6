"""How a sweep of 10,000 members that do nothing goes, and one whose daemon is killed. Run `python -m bench.sweep`."""

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.host import Daemon, arguments, cpu_s, memory_mb, print_results, running_daemon

PLACES: Final = ("--machine", "4x16GiB", "--fraction", "0.25")  # 16 at a time
_LOOK_S: Final = 2.0

Result = tuple[str, float, str, str]


def started(daemon: Daemon, members: int, *command: str) -> None:
    """Queue a sweep of so many members."""
    daemon.command("sweep", "-d", "--array", f"0-{members - 1}", *PLACES, "--", *command)


def looks(daemon: Daemon) -> Iterator[None]:
    """Give the turn for a look at once, and then every two seconds until the sweep has ended."""
    yield
    while daemon.jobs(0):
        time.sleep(_LOOK_S)
        yield


def seconds(daemon: Daemon, *words: str) -> float:
    """Return how long a command takes."""
    began = time.perf_counter()
    daemon.command(*words)
    return time.perf_counter() - began


def undisturbed(members: int) -> list[Result]:
    """Run a sweep of `true`; ask for `ps` in its midst, and for `usage` behind it."""
    with running_daemon() as daemon:
        daemon.command("ps")  # the modules are compiled
        began, used = time.perf_counter(), cpu_s(daemon.pid)
        started(daemon, members, "true")
        asked, memory = [], []
        for _ in looks(daemon):
            asked.append(seconds(daemon, "ps"))
            memory.append(memory_mb(daemon.pid)[0])
        taken, used = time.perf_counter() - began, cpu_s(daemon.pid) - used
        alone = [seconds(daemon, "ps") for _ in range(20)]
        usage = [seconds(daemon, "usage", "--since", "7d") for _ in range(20)]
        return [
            (f"{members} members of `true`, 16 at a time", members / taken, "1/s", ">= 30"),
            ("  the daemon's RSS, the most", max(memory), "MB", "< 120"),
            ("  the daemon, of a core", 100 * used / taken, "%", "< 60"),
            *spread(f"gpusched ps in its midst, {len(asked)} times", asked, "<= 0.2"),
            *spread("gpusched ps behind it", alone, "<= 0.2"),
            *spread(f"gpusched usage over its {members} members", usage, "<= 0.3"),
        ]


def spread(what: str, taken: Sequence[float], wanted: str) -> list[Result]:
    """Return the rows of what was timed several times."""
    rest = (("the 9th of 10", sorted(taken)[len(taken) * 9 // 10]), ("the slowest", max(taken)))
    return [(what, statistics.median(taken), "s", wanted), *((f"  {which}", value, "s", "") for which, value in rest)]


def disturbed(members: int, kills: int) -> list[Result]:
    """Run a sweep whose members each leave their number in a file; kill -9 the daemon so many times in its midst."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as home, running_daemon() as daemon:
        ran = Path(home, "ran")
        ran.touch()
        started(daemon, members, "sh", "-c", 'echo $GPUSCHED_INDEX >> "$0"', str(ran))
        done = 0
        for _ in looks(daemon):
            if done < kills and ran.read_text().count("\n") >= (done + 1) * members // (kills + 1):
                daemon.kill()
                daemon.start()
                done += 1
        times = Counter(map(int, ran.read_text().split()))
        return [
            (f"{members} members, the daemon killed -9", done, "times", f"= {kills}"),
            ("  members that never ran", sum(number not in times for number in range(members)), "", "= 0"),
            ("  members that ran twice", sum(many > 1 for many in times.values()), "", "= 0"),
        ]


def main() -> None:
    """Measure, and print what came out."""
    typed = arguments(
        __doc__,
        ("--members", 10_000, "how many members each sweep has"),
        ("--kills", 5, "how often the daemon is killed"),
    )
    results = undisturbed(typed.members) + disturbed(typed.members, typed.kills)
    print_results(results, as_json=typed.json)


if __name__ == "__main__":
    main()
