"""The names of hosts that joined: whose they are, for how long, and how many there may be."""

import os
from pathlib import Path

import pytest

from gpusched.channel.messages import PROTOCOL, Refused
from gpusched.channel.remote import hosts
from gpusched.channel.remote.hosts import Hosts
from gpusched.channel.values import ActorStatus
from gpusched.joining.invitation import Invitation, Invited, Join, write_invitation


@pytest.fixture
def every(tmp_path: Path) -> Hosts:
    write_invitation(tmp_path, Invitation(job="job-1", workload="snake", options="{}", files={}, versions={}))
    return Hosts(tmp_path, keyless=False)


def called(every: Hosts, host: str, nonce: str, key: str = "k") -> tuple[str, int]:
    answer = every.invite(key, Join(PROTOCOL, host, nonce), "10.0.0.2")
    assert isinstance(answer, Invited)
    return answer.joined, answer.first_rank


def sent(number: int, host: str, *, connected: bool = False) -> ActorStatus:
    return ActorStatus(
        name=f"actor.{number}@{host}",
        connected=connected,
        alive=connected,
        batches=1,
        bytes=1,
        waiting=0,
        seen_s=0.0,
        version=0,
        attempt=0,
    )


def test_a_pipe_in_the_place_of_what_was_written_holds_no_learner_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "joined.json")
    assert not Hosts(tmp_path, keyless=False)


def test_a_host_that_joins_again_is_another_one(every: Hosts) -> None:
    assert called(every, "lab2", "a") == ("lab2", 1000)
    assert called(every, "lab2", "b") == ("lab2-2", 2000)


def test_hosts_of_which_no_actor_came_give_way_and_ranks_stay_apart(
    every: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_MOST_OF_A_KEY", 2)
    ranks = [called(every, "lab", nonce)[1] for nonce in "abcdef"]
    assert ranks == [1000, 2000, 3000, 4000, 5000, 6000]


def test_hosts_that_have_left_give_way_to_those_of_the_same_key_only(
    every: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_MOST_OF_A_KEY", 2)
    monkeypatch.setattr(hosts, "_MOST", 3)
    for name, key in (("lab1", "a"), ("lab2", "a"), ("lab3", "b")):
        called(every, name, f"{name}-1", key)
    every.news([sent(1, "lab1", connected=True), sent(2, "lab2"), sent(3, "lab3")])
    assert called(every, "lab4", "2", "a") == ("lab4", 4000)
    every.news([sent(1, "lab1", connected=True), sent(3, "lab3"), sent(4, "lab4", connected=True)])
    assert isinstance(every.invite("a", Join(PROTOCOL, "lab5", "3"), ""), Refused), "two of its hosts are here"
    assert isinstance(every.invite("c", Join(PROTOCOL, "lab5", "3"), ""), Refused), "lab3 may come back"


def test_a_full_house_refuses(every: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST", 0)
    answer = every.invite("k", Join(PROTOCOL, "lab2", "a"), "10.0.0.2")
    assert isinstance(answer, Refused)
    assert answer.kind == "full"
