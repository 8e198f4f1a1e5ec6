"""Real PyTorch and real JAX, in real processes, where they are installed; on a GPU: tests/gpu."""

import importlib.util

import pytest

from tests.frameworks.conftest import RunScript


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_unchanged_pytorch_script_gets_the_fraction_when_cuda_starts_and_cannot_widen_it(
    run_script: RunScript,
) -> None:
    ran = run_script("torch_cuda.py")
    assert ran.code == 0, ran.err
    assert "done" in ran.out
    assert "set_per_process_memory_fraction(0.5) is lowered to this process's 0.0701" in ran.err


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="JAX is not installed")
@pytest.mark.parametrize("given", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_an_unchanged_jax_script_gets_the_fraction_and_neither_breaks_nor_widens_it(
    run_script: RunScript, environment: dict[str, str], given: str
) -> None:
    fraction = environment.pop("XLA_PYTHON_CLIENT_MEM_FRACTION")
    ran = run_script("jax_options.py", env=environment | {given: fraction})
    assert ran.code == 0, ran.err
    assert "done" in ran.out
    assert "keeps to no limit" in ran.err
