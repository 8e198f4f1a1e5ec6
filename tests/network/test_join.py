"""`launch --listen` and `join` on two hosts with addresses of their own, and what somebody in between would see."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from zmq.utils import z85

from tests.cli import two_hosts
from tests.network.hosts import Host
from tests.patience import until

CAPTURE = """
import socket, sys
every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL, packet(7)
every.bind(("eth0", 0))
with open(sys.argv[1], "wb", buffering=0) as file:
    print("ready", flush=True)
    while True:
        file.write(every.recv(65536))
"""


@pytest.fixture
def hosts(cable: tuple[Host, Host], tmp_path: Path) -> Iterator[tuple[two_hosts.Host, two_hosts.Host]]:
    """Two hosts, each with a directory, a name and an address of its own."""
    both = [two_hosts.Host(tmp_path / host.as_host, host.command()) for host in cable]
    try:
        yield both[0], both[1]
    finally:
        for host in both:
            host.command.end()


@pytest.fixture
def seen(cable: tuple[Host, Host], tmp_path: Path) -> Iterator[Path]:
    """The file in which every byte lies that went over the cable."""
    path = tmp_path / "seen"
    capture = cable[1].python("-c", CAPTURE, str(path), stdout=subprocess.PIPE)
    assert capture.stdout is not None
    assert capture.stdout.readline() == "ready\n"
    yield path
    capture.kill()
    capture.wait()


def test_two_local_and_four_remote_actors_feed_the_learner_and_nobody_else_reads_it(
    hosts: tuple[two_hosts.Host, two_hosts.Host], seen: Path
) -> None:
    one, two = hosts
    launched, words = two_hosts.listening(one, "--procs", "2", at="tcp://0.0.0.0:5555")
    joined = two.start(*words[:-1], "4")
    until(lambda: len(one.fed()) == 6, "all six feed the learner")
    until(lambda: [host["connected"] for host in one.status()["joined"]] == [4], "the status tells of them")
    told = one.status()["joined"][0]
    two_hosts.end(one, launched, joined)
    traffic = seen.read_bytes()
    keys = [json.loads(path.read_text()) for path in one.home.glob("state/**/*.key")]

    assert words[1] == "tcp://10.77.0.1:5555", "where others reach it, though it listens everywhere"
    assert sorted(one.fed()) == ["actor.0", "actor.0@lab2", "actor.1", *(f"actor.{n}@lab2" for n in (1, 2, 3))]
    assert (told["host"], told["address"]) == ("lab2", "10.77.0.2")
    assert (launched.returncode, joined.returncode) == (0, 0)
    assert b"CURVE" in traffic, "what is looked into is what went over the cable (ZMTP's greeting is plain)"
    assert len(traffic) > told["bytes"] > 0
    assert np.arange(4.0).tobytes() not in traffic, "weights, and the batches that repeat them"
    for plain in (b"weights", b"batch", b"actor.0", b"toy-1", b"lab2", b"float64"):
        assert plain not in traffic
    for secret in [key["secret"] for key in keys]:
        assert secret.encode() not in traffic
        assert z85.decode(secret) not in traffic


@pytest.mark.parametrize("at", ["10.77.0.1", "[fd00:77::1]"])
def test_a_learner_at_all_addresses_of_both_kinds_takes_actors_by_either(
    at: str, hosts: tuple[two_hosts.Host, two_hosts.Host], cable: tuple[Host, Host]
) -> None:
    for number, host in enumerate(cable, start=1):
        address = f"fd00:77::{number}/64"
        subprocess.run(["ip", "-n", host.name, "address", "add", address, "dev", "eth0", "nodad"], check=True)
    one, two = hosts
    launched, words = two_hosts.listening(one, at="tcp://[::]:5555")
    joined = two.start("join", f"tcp://{at}:5555", *words[2:])
    until(lambda: len(one.fed()) == 2, "the actor feeds the learner")
    until(lambda: one.status()["joined"], "the status tells of it")
    came_from = one.status()["joined"][0]["address"]
    output = "".join(two_hosts.end(one, launched, joined))

    assert re.fullmatch(r"tcp://\S+:5555", words[1])
    assert came_from.removeprefix("::ffff:") == at.strip("[]").removesuffix("1") + "2"
    assert (launched.returncode, joined.returncode) == (0, 0), output
