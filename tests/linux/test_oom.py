from pathlib import Path

import pytest

from gpusched.linux.oom import OomKills, find_counter, read_counter


class Counter:
    def __init__(self) -> None:
        self.value: int | None = 0

    def __call__(self) -> int | None:
        return self.value


def test_each_kill_explains_one_death() -> None:
    counter = Counter()
    kills = OomKills(counter)
    assert not kills.claim()
    counter.value = 2
    assert [kills.claim() for _ in range(3)] == [True, True, False]


def test_kills_before_the_job_explain_nothing() -> None:
    counter = Counter()
    counter.value = 5
    kills = OomKills(counter)
    assert not kills.claim()


def test_a_kill_of_another_process_is_forgotten_after_two_samples() -> None:
    counter = Counter()
    kills = OomKills(counter)
    counter.value = 1
    kills.sample()
    assert kills.claim()
    counter.value = 2
    kills.sample()
    kills.sample()
    assert not kills.claim()


def test_without_a_counter_nothing_is_called_an_oom() -> None:
    counter = Counter()
    counter.value = None
    kills = OomKills(counter)
    kills.sample()
    assert not kills.claim()


@pytest.mark.parametrize(
    ("group", "mount", "file", "content"),
    [
        ("0::/user.slice/a", "30 1 0:26 / {} rw - cgroup2 cgroup2 rw", "user.slice/a/memory.events", "oom_kill 3\n"),
        ("0::/", "30 1 0:26 / {} rw - cgroup2 cgroup2 rw", "memory.events", "low 0\noom 7\noom_kill 3\n"),
        (
            "4:memory:/docker/x/job",
            "30 1 0:26 /docker/x {} rw - cgroup cgroup rw,memory",
            "job/memory.oom_control",
            "under_oom 0\noom_kill 3\n",
        ),
    ],
)
def test_the_counter_is_that_of_the_own_memory_cgroup(
    tmp_path: Path, group: str, mount: str, file: str, content: str
) -> None:
    proc, point = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"1:cpu:/elsewhere\n{group}\n")
    (proc / "self" / "mountinfo").write_text("29 1 0:25 / /proc rw - proc proc rw\n" + mount.format(point) + "\n")
    (point / file).parent.mkdir(parents=True)
    (point / file).write_text(content)
    assert find_counter(proc) == point / file
    assert read_counter(find_counter(proc)) == 3


def test_the_hosts_counter_stands_in_where_there_is_no_memory_cgroup(tmp_path: Path) -> None:
    assert find_counter(tmp_path) == tmp_path / "vmstat"
    (tmp_path / "vmstat").write_text("oom_kill 12\n")
    assert read_counter(tmp_path / "vmstat") == 12
    assert read_counter(tmp_path / "nothing") is None


def test_this_host_has_a_counter() -> None:
    assert read_counter(find_counter()) is not None
