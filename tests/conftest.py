"""What tests of several packages share."""

import atexit
import getpass
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

import tests.signals
from tests.stand_in.library import StandIn
from tests.supervisor.host import Host

pytest_plugins = ("tests.stress.plugin",)

hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")  # how long an example takes says how busy the host is

os.environ.pop("COLUMNS", None)  # tests that run side by side are given one, and it would be every terminal's width

for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:  # by nohup or as a shell's background job; children would inherit it
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

tests.signals.refuse_whole_groups()

if "PYTEST_XDIST_WORKER" in os.environ:
    # A group of processes without a parent in another one is hung up, all of it, when a process of it is stopped while
    # one ends whose parent had left the group (setpgid(2), _exit(2)): as a supervisor's that was killed amid a test.
    os.setpgid(0, 0)


_SHORT: Final = len("/tmp/pytest-of-gpusched")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hide this host's GPUs, and have short paths."""
    if config.option.markexpr != "gpu" and not all(_is_for_gpus(arg) for arg in config.args):
        _hide_gpus()
    _have_short_paths(config)


def _is_for_gpus(arg: str) -> bool:
    return Path(__file__).parent / "gpu" in (path := Path(arg).absolute(), *path.parents)


def _hide_gpus() -> None:
    """Have this process's children, such as the tests' workers, find no NVIDIA library: they expect a host without.

    The loader looks in this directory first, and what it finds there is no library (ld.so(8)). A test that brings the
    stand-in puts its own directory in that place.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    hidden = Path(tempfile.mkdtemp(prefix="gps-no-gpu-"))
    atexit.register(shutil.rmtree, hidden, ignore_errors=True)
    hidden.chmod(0o755)  # for processes of another user, too
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (hidden / name).touch()
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(hidden), before)))


def _have_short_paths(config: pytest.Config) -> None:
    """The tests' sockets lie in their directories, also where a person has a long name or TMPDIR."""
    usual = f"{tempfile.gettempdir()}/pytest-of-{getpass.getuser()}"
    if len(usual) <= _SHORT or config.option.basetemp is not None:
        return
    base = tempfile.mkdtemp(prefix="gps-", dir="/tmp")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    config.option.basetemp = base


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-in for NVIDIA's library: `stand_in.host(scenario).run([...])` is a process on a host with GPUs."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the stand-in for NVIDIA's library with")
    return StandIn(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A place to start real jobs; none of their processes is left after the test."""
    found = Host(tmp_path)
    yield found
    found.end()
