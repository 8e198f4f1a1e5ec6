"""The names of hosts that joined: whose they are, for how long, and how many there may be."""

from pathlib import Path

import pytest

from gpusched.channel.messages import PROTOCOL, Refused
from gpusched.channel.remote import hosts
from gpusched.channel.remote.hosts import Hosts
from gpusched.joining.invitation import Invitation, Invited, Join, write_invitation


@pytest.fixture
def every(tmp_path: Path) -> Hosts:
    write_invitation(tmp_path, Invitation(job="job-1", workload="snake", options="{}", files={}, versions={}))
    return Hosts(tmp_path, keyless=False)


def called(every: Hosts, host: str, nonce: str, key: str = "k") -> tuple[str, int]:
    answer = every.invite(key, Join(PROTOCOL, host, nonce), "10.0.0.2")
    assert isinstance(answer, Invited)
    return answer.joined, answer.first_rank


def test_a_host_that_joins_again_soon_is_another_one(every: Hosts) -> None:
    assert called(every, "lab2", "a") == ("lab2", 1000)
    assert called(every, "lab2", "b") == ("lab2-2", 2000)


def test_a_host_of_which_nobody_was_here_for_long_is_called_as_before(
    every: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(every, "lab2", "a")
    called(every, "lab2", "b")
    monkeypatch.setattr(hosts, "_GONE_S", 0.0)
    assert called(every, "lab2", "c", key="another") == ("lab2-3", 3000), "names belong to keys"
    assert called(every, "lab", "d") == ("lab", 4000)
    assert {called(every, "lab2", nonce) for nonce in "ef"} == {("lab2", 1000), ("lab2-2", 2000)}
    assert called(every, "lab2", "g") == ("lab2-4", 5000), "both have come back just now"


def test_hosts_of_which_no_actor_came_give_way_and_ranks_stay_apart(
    every: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_MOST_OF_A_KEY", 2)
    ranks = [called(every, "lab", nonce)[1] for nonce in "abcdef"]
    assert ranks == [1000, 2000, 3000, 4000, 5000, 6000]


def test_a_full_house_refuses(every: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST", 0)
    answer = every.invite("k", Join(PROTOCOL, "lab2", "a"), "10.0.0.2")
    assert isinstance(answer, Refused)
    assert answer.kind == "full"
