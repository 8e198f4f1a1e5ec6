"""What follows from measured runs: how much memory to ask for, and how much a context takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.footprint import (
    ENOUGH_RUNS,
    LATEST_RUNS,
    Context,
    Footprint,
    context_elsewhere,
    context_of,
    enlarged,
    use_of,
)

V100, DRIVER, MOST = "Tesla V100-SXM2-16GB", "535.129.03", 1 << 20


def runs(*peaks: int | None, lacked: dict[int, int] | None = None, framework: str | None = "torch") -> list[Footprint]:
    """Return footprints, the latest first; `lacked`: at which limits which of them ran out of memory."""
    return [
        Footprint(
            job=f"run-{number}",
            ended=1000.0 - number,
            peak_mib=peak,
            lacked_mib=(lacked or {}).get(number),
            framework=framework,
            version="2.11",
        )
        for number, peak in enumerate(peaks)
    ]


@given(st.lists(st.integers(1, 80_000), min_size=1, max_size=12))
def test_asked_for_is_the_most_of_the_latest_runs_and_a_twentieth_up_to_the_next_64(
    peaks: list[int],
) -> None:
    use = use_of(V100, runs(*peaks), 450, MOST)
    assert use is not None
    most = max(peaks[:LATEST_RUNS])
    assert (use.runs, use.peak_mib) == (min(len(peaks), LATEST_RUNS), most)
    if len(peaks) < ENOUGH_RUNS:
        assert use.ask_mib is None
    else:
        assert use.ask_mib is not None
        assert use.ask_mib % 64 == 0
        assert 0 <= use.ask_mib - most * 1.05 < 64


def test_nothing_follows_from_no_run() -> None:
    assert use_of(V100, [], 450, MOST) is None


def test_of_a_program_without_a_framework_the_drivers_figure_counts_less_its_contexts() -> None:
    rows = [Footprint(job=f"run-{number}", ended=9.0 - number, device_mib=1450) for number in range(3)]
    assert [use.ask_mib for use in (use_of(V100, rows, 450, MOST), use_of(V100, rows, 250, MOST)) if use] == [
        1088,
        1280,
    ]
    tiny = [Footprint(job=f"run-{number}", ended=9.0 - number, device_mib=300) for number in range(3)]
    assert [use.ask_mib for use in (use_of(V100, tiny, 450, MOST),) if use] == [64], "a limit is never 0"


def test_after_a_lack_of_memory_more_is_asked_for_until_five_runs_have_succeeded_since() -> None:
    for since in range(7):
        use = use_of(V100, runs(*[400] * (since + 4), lacked={since: 448}), 450, MOST)
        assert use is not None
        assert use.ask_mib == (enlarged(448) if since < LATEST_RUNS else 448), since
        assert use.lacked_mib == (448 if since < LATEST_RUNS else None), since


@pytest.mark.parametrize(("limit", "more"), [(100, 356), (1133, 1389), (1280, 1536), (10_000, 12_000)])
def test_after_a_lack_a_fifth_more_is_asked_for_and_at_least_256(limit: int, more: int) -> None:
    assert enlarged(limit) == more


def test_runs_with_another_version_of_the_framework_do_not_count() -> None:
    (latest,), older = runs(500), runs(*[900] * 4, framework="tensorflow")
    use = use_of(V100, [latest, *older], 450, MOST)
    assert use is not None
    assert (use.runs, use.ask_mib, use.framework) == (1, None, "torch 2.11")


def test_a_lack_before_a_framework_was_seen_counts_and_leaves_what_is_known() -> None:
    lack = Footprint(job="lack", ended=2000.0, lacked_mib=800)
    for rows in ([lack, *runs(*[500] * 4)], [*runs(500), replace(lack, ended=999.5), *runs(*[500] * 4)[1:]]):
        use = use_of(V100, rows, 450, MOST)
        assert use is not None
        assert (use.runs, use.lacked_mib, use.ask_mib, use.framework) == (4, 800, enlarged(800), "torch 2.11")


def test_runs_without_a_framework_count_only_where_no_run_has_one() -> None:
    silent = [Footprint(job=f"silent-{number}", ended=2000.0 - number, device_mib=5450) for number in range(3)]
    use, other = use_of(V100, [*silent, *runs(500)], 450, MOST), use_of(V100, silent, 450, MOST)
    assert use is not None
    assert other is not None
    assert (use.runs, use.peak_mib) == (1, 500)
    assert (other.runs, other.peak_mib) == (3, 5000)


def contexts(framework: str, version: str, *mib: int, driver: str = DRIVER) -> list[Context]:
    return [
        Context(driver=driver, framework=framework, version=version, mib=one, ended=float(len(mib) - number))
        for number, one in enumerate(mib)
    ]


KNOWN = [*contexts("torch", "2.11", 500, 510, 505), *contexts("torch", "2.10", 480, 470, 460)]
KNOWN += [*contexts("jax", "0.8", 300, 310, 320), *contexts("cupy", "14", 900, 900)]


@pytest.mark.parametrize(
    ("framework", "version", "mib"),
    [
        ("torch", "2.11", 510),
        ("torch", "2.10", 480),
        ("torch", "2.12", 510),
        ("jax", "0.8", 320),
        ("cupy", "14", 510),
        (None, None, 510),
    ],
    ids=["the same", "an older version", "an unknown version", "less than is usual", "too few runs", "unknown"],
)
def test_a_context_is_that_of_the_same_framework_else_the_largest_of_any(
    framework: str | None, version: str | None, mib: int
) -> None:
    found = context_of(V100, KNOWN, framework, version, 450)
    assert found is not None
    assert (found.mib, found.device) == (mib, V100)


def test_of_an_unknown_framework_a_small_context_of_another_is_no_proof() -> None:
    assert context_of(V100, contexts("jax", "0.8", 300, 310, 320), "torch", "2.11", 450) is None
    assert context_of(V100, [], "torch", "2.11", 450) is None


def test_the_latest_five_runs_count_for_a_context() -> None:
    found = context_of(V100, contexts("torch", "2.11", 400, 410, 420, 415, 405, 800), "torch", "2.11", 450)
    assert found is not None
    assert (found.mib, found.runs) == (420, 5)
    assert str(found) == f"measured: 5 runs with torch 2.11 on {V100}, driver {DRIVER}"


@pytest.mark.parametrize(
    ("device", "usual_mib", "mib"),
    [
        ("NVIDIA H200", 450, 640),
        ("NVIDIA H100 80GB HBM3", 450, 640),
        ("NVIDIA GH200 480GB", 450, 640),
        ("NVIDIA H100 PCIe", 700, None),
        ("NVIDIA A100-SXM4-80GB", 450, None),
        (V100, 450, None),
    ],
)
def test_where_none_was_measured_a_context_is_as_it_was_elsewhere_and_never_below_the_usual(
    device: str, usual_mib: int, mib: int | None
) -> None:
    found = context_elsewhere(device, usual_mib)
    assert (found and found.mib) == mib
    assert found is None or str(found) == "as PyTorch, JAX and CuPy took on an H200, driver 580.159"
