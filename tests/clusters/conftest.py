"""Real clusters on this machine, and a person at their login host."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.clusters.person import Person
from tests.clusters.ray import RayCluster, ray_of_three
from tests.clusters.slurm import Slurm, slurm_of_three


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short path: sockets lie in it."""
    path = Path(tempfile.mkdtemp(prefix="gpsc", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def slurm(short: Path, request: pytest.FixtureRequest) -> Iterator[Slurm]:
    base = short / "slurm"
    base.mkdir()
    with slurm_of_three(base, soon=request.node.get_closest_marker("long") is not None) as cluster:
        yield cluster


@pytest.fixture
def person(short: Path, slurm: Slurm) -> Iterator[Person]:
    yield from at_the_login_host(short, slurm.environ)


@pytest.fixture
def ray(short: Path) -> Iterator[RayCluster]:
    base = short / "ray"
    base.mkdir()
    with ray_of_three(base) as cluster:
        yield cluster


@pytest.fixture
def person_with_ray(short: Path, ray: RayCluster) -> Iterator[Person]:
    yield from at_the_login_host(short, ray.environ)


def at_the_login_host(short: Path, environ: Mapping[str, str]) -> Iterator[Person]:
    (short / "home").mkdir()
    command = Command(short / "home", env=environ)
    try:
        yield Person(command)
    finally:
        command.end()
