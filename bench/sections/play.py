"""One actor's process with the original's network: environment steps a second."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bench.fresh import ROOT, Failed
from bench.section import Figure, Goal, Missing, Row, Section

__all__ = ["SECTION"]

_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 0.4
_PATIENCE_S: Final = 120.0


class _Players:
    """The processes that play, one for all cores and one for one core; each starts when it is first asked."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._home = ""

    def steps(self, row: str, cores: int, seconds: float) -> Mapping[str, float]:
        """Return the figures of a row. Raises Missing, and Failed if there are none within two minutes."""
        process = self._processes.get(cores) or self._start(cores)
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 (for the type checker)
        print(row, seconds, file=process.stdin, flush=True)
        answered, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
        answer = json.loads(process.stdout.readline() or "{}") if answered else {}
        if "missing" in answer:
            raise Missing(answer["missing"])
        if "steps" not in answer:
            self._end(cores)
            raise Failed(answer.get("failed", f"no figures after {_PATIENCE_S:.0f} s"))
        return {"steps": answer["steps"]}

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """End them all at the end, and what they had in TMPDIR goes."""
        with tempfile.TemporaryDirectory(prefix="gb-", ignore_cleanup_errors=True) as self._home:
            try:
                yield
            finally:
                for cores in tuple(self._processes):
                    self._end(cores)

    def _start(self, cores: int) -> subprocess.Popen[str]:
        self._processes[cores] = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.play", str(cores)],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": self._home},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self._processes[cores]

    def _end(self, cores: int) -> None:
        process = self._processes.pop(cores)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass


_PLAYERS: Final = _Players()
_ALL: Final = 0


def _plays(row: str, cores: int = _ALL) -> Callable[[bool], Mapping[str, float]]:
    return lambda quick: _PLAYERS.steps(row, cores, _QUICK_SECONDS if quick else _SECONDS)


_OURS: Final = "gpusched, 256 games"
_OURS_ON_ONE: Final = "gpusched, 256 games, one core"
_ORIGINAL: Final = "Session.run, batch 1"
_ORIGINAL_ON_ONE: Final = "Session.run, batch 1, one core"
_STRONG: Final = "256 games in NumPy, a tf.function"

SECTION: Final = Section(
    name="play",
    title="Environment steps of one actor",
    about=(
        "One process plays Snake with actions drawn from the policy of the original's network, on all cores unless the "
        "row says otherwise. Session.run is what the original had; with one core it is faster than with two, because "
        "one frame is too little to share. gpusched plays whole rollouts, ready to be sent, and its network has a "
        "value head; the peers keep nothing of what they play."
    ),
    figures={"steps": Figure("environment steps", "1/s", "more")},
    rows=(
        Row(_OURS, "ours", _plays("ours-256")),
        Row(_ORIGINAL, "original", _plays("session")),
        Row(_STRONG, "strong", _plays("strong-256")),
        Row("gpusched, 1,024 games", "ours", _plays("ours-1024")),
        Row(_OURS_ON_ONE, "ours", _plays("ours-256", 1)),
        Row(_ORIGINAL_ON_ONE, "original", _plays("session", 1)),
        Row("Keras predict, batch 1", "other", _plays("predict")),
        Row("Keras model(x), batch 1", "other", _plays("eager")),
        Row("tf.function, batch 1", "other", _plays("function")),
        Row("NumPy forward, batch 1, one core", "strong", _plays("numpy", 1)),
        Row("TensorFlow Lite, batch 1", "strong", _plays("lite")),
    ),
    goals=(
        Goal("256 games at least 15 times the original's batch-1 loop", "steps", _OURS, than=_ORIGINAL, times=15),
        Goal("the same on one core each", "steps", _OURS_ON_ONE, than=_ORIGINAL_ON_ONE),
        Goal("ahead of 256 games with a plain tf.function", "steps", _OURS, than=_STRONG),
    ),
    takes_s=70,
    quick_takes_s=20,
    around=_PLAYERS.there,
)
