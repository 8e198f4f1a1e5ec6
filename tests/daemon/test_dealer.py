"""The client's own ZMTP, against ZeroMQ itself and against those that speak nothing like it."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from gpusched.control.dealer import Dealer, HangUpError

LONGEST = 4 << 20


def soon() -> float:
    return time.monotonic() + 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def router(path: Path) -> Iterator[Any]:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as one:
        one.linger = 0
        one.bind(f"ipc://{path}")
        yield one


@pytest.fixture
def stranger(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        one.listen()
        yield one


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_536, 3 << 20])
def test_messages_of_any_size_arrive_whole_both_ways(size: int, path: Path, router: Any) -> None:
    dealer = Dealer(path, soon(), LONGEST)
    body = bytes(range(256)) * (size // 256 + 1)

    dealer.send([b"\x01", b"", body[:size]], soon())
    peer, *frames = router.recv_multipart()
    router.send_multipart([peer, b"first", body[:size]])
    router.send_multipart([peer, b"second"])

    assert frames == [b"\x01", b"", body[:size]]
    assert dealer.receive(soon()) == [b"first", body[:size]]
    assert dealer.receive(soon()) == [b"second"]
    assert dealer.is_open()
    dealer.close()


def test_nothing_is_lost_by_a_wait_that_was_too_short(path: Path, router: Any) -> None:
    dealer = Dealer(path, soon(), LONGEST)
    dealer.send([b"question"], soon())
    peer, _ = router.recv_multipart()

    with pytest.raises(TimeoutError):
        dealer.receive(time.monotonic() + 0.01)
    router.send_multipart([peer, b"answer"])

    assert dealer.receive(soon()) == [b"answer"]
    dealer.close()


def test_a_router_that_closes_is_noticed(path: Path, router: Any) -> None:
    dealer = Dealer(path, soon(), LONGEST)
    dealer.send([b"question"], soon())
    router.recv_multipart()
    router.close()

    with pytest.raises(HangUpError):
        dealer.receive(soon())
    assert not dealer.is_open()
    dealer.close()


def test_a_frame_that_is_too_long_ends_the_connection_before_it_is_read(path: Path, router: Any) -> None:
    dealer = Dealer(path, soon(), longest=1000)
    dealer.send([b"question"], soon())
    router.send_multipart([router.recv_multipart()[0], bytes(1001)])

    with pytest.raises(HangUpError, match="1001 bytes"):
        dealer.receive(soon())
    dealer.close()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n".ljust(64), bytes(64), b""])
def test_who_greets_otherwise_is_no_router(greeting: bytes, path: Path, stranger: socket.socket) -> None:
    def answer() -> None:
        with stranger.accept()[0] as one:
            one.sendall(greeting)

    other = threading.Thread(target=answer)
    other.start()
    with pytest.raises(HangUpError):
        Dealer(path, soon(), LONGEST)
    other.join()


@pytest.mark.usefixtures("stranger")
def test_who_says_nothing_is_waited_for_no_longer_than_wanted(path: Path) -> None:
    with pytest.raises(TimeoutError):
        Dealer(path, time.monotonic() + 0.05, LONGEST)


def test_where_nobody_listens_there_is_no_connection(path: Path) -> None:
    with pytest.raises(HangUpError):
        Dealer(path, soon(), LONGEST)
