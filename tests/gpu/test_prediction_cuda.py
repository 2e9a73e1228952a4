"""Predictions beside measurements: three backbones, plain and under autocast.

Run with ``-s`` to see the table. ``WORKBENCH_TRACES=folder`` keeps both records of each case there:
pairs of predicted and measured are what intervals can be calibrated with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.predicting import BACKBONES, predicted, this_gpu
from tests.gpu.support import kept_in, printed_table, run_apart
from workbench.allocator.simulator.gpus import gpu_named
from workbench.memory import memory
from workbench.records import CATEGORIES, MemoryRecord

CASES = [(name, modes) for name in BACKBONES for modes in ("", "bf16")]
FARTHEST = 1.5
"""Times that a measured peak may be off; the table tells by how much it is."""
MIB = 2**20
HEAD = (
    "model", "modes", "allocated, MiB", "measured", "ratio", "reserved, MiB", "measured", "inside"
)  # fmt: skip

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def rows() -> Iterator[list[tuple[str, ...]]]:
    """Lines of the table that is printed when all cases have run."""
    yield from printed_table(HEAD)


def measured_apart(name: str, modes: str, path: Path) -> MemoryRecord:
    """Measured in a process of its own."""
    run_apart("tests.gpu.predicting", name, modes, str(path))
    return memory(path).record


def row_of(name: str, modes: str, found: MemoryRecord, real: MemoryRecord) -> tuple[str, ...]:
    low, high = found.peak_interval
    reserved = int(real.reserved().max())
    return (
        name,
        modes or "fp32",
        f"{found.peak_bytes / MIB:.1f}",
        f"{real.peak_bytes / MIB:.1f}",
        f"{found.peak_bytes / real.peak_bytes:.3f}",
        f"{low / MIB:.0f} to {high / MIB:.0f}",
        f"{reserved / MIB:.0f}",
        "yes" if low <= reserved <= high else "no",
    )


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize(("name", "modes"), CASES)
def test_a_prediction_beside_a_measurement(
    name: str, modes: str, tmp_path: Path, rows: list[tuple[str, ...]]
) -> None:
    folder = kept_in(tmp_path)
    words = f"{name}_{modes or 'fp32'}"
    real = measured_apart(name, modes, folder / f"{words}_measured.safetensors")
    found = predicted(name, modes, this_gpu(), tmp_path / "runs")
    found.save(folder / f"{words}_predicted.safetensors")
    rows.append(row_of(name, modes, found, real))
    assert real.device.startswith("cuda")
    held = [found.at_peak()["parameters"], real.at_peak()["parameters"]]
    assert held[0] == pytest.approx(held[1], rel=0.02)
    assert 1 / FARTHEST < found.peak_bytes / real.peak_bytes < FARTHEST
    low, high = (value / real.reserved().max() for value in found.peak_interval)
    assert low < FARTHEST
    assert high > 1 / FARTHEST


@pytest.mark.gpu
@needs_cuda
def test_an_experiment_on_a_gpu_is_predicted_on_the_cpu(tmp_path: Path) -> None:
    """The copy is taken off the card: what is predicted is the same, wherever it trains."""
    from tests.gpu.predicting import experiment
    from workbench.memory.prediction.predict import predicted_step

    card = gpu_named("RTX 4090")
    exp = experiment("transformer", "bf16", tmp_path, "cuda")
    before = torch.cuda.memory_allocated()
    found = predicted_step(exp, card)
    assert torch.cuda.memory_allocated() == before
    exp.close()
    assert found.peak_interval == predicted("transformer", "bf16", card, tmp_path).peak_interval


@pytest.mark.parametrize(("name", "modes"), CASES)
def test_every_case_is_predicted_without_a_gpu(name: str, modes: str, tmp_path: Path) -> None:
    found = predicted(name, modes, gpu_named("RTX 4090"), tmp_path)
    assert found.peak_bytes > 16 * MIB
    assert not len(found.oom_event)
    unknown = found.block_category == CATEGORIES.index("unknown")
    assert int(found.block_bytes[unknown].sum()) < 0.02 * found.peak_bytes
