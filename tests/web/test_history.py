"""How busy the devices were in the last hour, as the page draws it."""

from typing import Any

from gpusched.model.device import Device
from gpusched.web.history import History


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def gpu(busy: int | None, uuid: str = "GPU-a") -> Device:
    return Device(index=0, uuid=uuid, name="V100", utilization_percent=busy)


def test_half_a_minute_is_one_mean_and_where_nothing_was_seen_there_is_none() -> None:
    clock = Clock()
    history = History(clock)
    assert history.view() == {"every_s": 30, "age_s": 0, "busy": {}}
    clock.now = 1200.0
    for busy in (10, 20, 60):
        history.add([gpu(busy), gpu(None, "GPU-b")])
    clock.now = 1265.0
    history.add([gpu(4), gpu(100, "GPU-b")])
    assert history.view() == {"every_s": 30, "age_s": 5, "busy": {"GPU-a": [30, None, 4], "GPU-b": [None, None, 100]}}


def test_it_ends_after_an_hour_also_where_it_is_added_to_each_second() -> None:
    clock = Clock()
    history = History(clock)
    for second in range(10_000):
        clock.now = float(second)
        history.add([gpu(second % 100)])
    busy: Any = history.view()["busy"]
    assert len(busy["GPU-a"]) == 120
    clock.now += 7200
    history.add([gpu(1)])
    busy = history.view()["busy"]
    assert busy == {"GPU-a": [1]}
