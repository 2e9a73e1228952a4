"""A run that ran out of memory lives on: what it keeps, lets go of and says."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.out_of_memory.support import MIB, experiment, refused
from tests.integration.support import our_threads
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.experiment import Experiment
from workbench.memory import MemoryProbe, memory
from workbench.memory.simulated_gpu.simulated_gpu import SimulatedGpu


def test_nothing_of_the_failed_step_or_of_the_trials_is_kept(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "transformer")
    exp.card = CONTEXT_BYTES + 10 * MIB
    raised: list[BaseException] = []
    try:
        exp.run(epochs=1, wait=True)
    except torch.OutOfMemoryError as error:
        raised.append(error)  # as a notebook keeps the last one
    assert raised
    gc.collect()
    card = exp._training.gpu
    assert isinstance(card, SimulatedGpu)
    card.ledger.next_step()
    own = sum(p.nbytes for p in exp.model.parameters())
    assert card.ledger.allocated < 4 * own + MIB, "weights, gradients, moments at most"
    assert not our_threads()
    exp.close()


def test_the_memory_of_the_experiment_is_that_of_the_failed_step(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    kept = refused(exp, 48 * MIB)
    num_captures = len(exp.captures.infos())
    shown = memory(exp).record
    assert (shown.title, shown.remedies) == (kept.title, kept.remedies)
    assert len(shown.oom_event) == 1
    assert len(exp.captures.infos()) == num_captures
    assert exp.status == "exception"
    exp.batch_size = 8
    later = memory(exp).record
    assert len(later.oom_event) == 0, "what would come next is another step now"
    assert later.batch_size == 8
    assert exp.status == "paused"
    exp.close()


class Lavish(nn.Module):
    """One that makes a cache beside its step, and can be told not to ask for much."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)
        self.is_lavish = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_lavish:
            aside = threading.Thread(target=self._fill)
            aside.start()
            aside.join()
            torch.empty(30 * MIB // 4)
        return self.last(self.first(x))

    def _fill(self) -> None:
        self.register_buffer("cache", torch.zeros(50 * MIB // 4), persistent=False)


def lavish(folder: Path) -> Experiment:
    """One that has done a step, and whose next one is refused 30 MiB."""
    data = torch.randn(64, 64), torch.arange(64) % 10
    exp = Experiment(Lavish(), data, batch_size=16, runs=folder)
    exp.card = CONTEXT_BYTES + 20 * MIB
    exp.run(steps=1, wait=True)
    exp.model.is_lavish = True
    return exp


@pytest.mark.parametrize("is_captured", [False, True])
def test_what_the_step_asked_for_is_told_not_what_naming_its_blocks_came_upon(
    tmp_path: Path, is_captured: bool
) -> None:
    """Nobody saw the cache being made: it is found when what the step left behind is named."""
    exp = lavish(tmp_path)
    if is_captured:
        exp.capture(MemoryProbe())
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(steps=1, wait=True)
    assert exp.failure is not None
    assert exp.failure.title.startswith("Out of memory: 30.0 MiB requested")
    assert exp.failure.remedies
    exp.close()


def test_a_model_that_was_told_to_ask_for_less_does_another_step(tmp_path: Path) -> None:
    exp = lavish(tmp_path)
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(steps=1, wait=True)
    kept = memory(exp).record
    assert len(kept.oom_event) == 1
    assert any("as it was kept" in note for note in kept.notes)
    exp.model.is_lavish = False
    exp.model.cache = None
    assert len(memory(exp).record.oom_event) == 0
    assert exp.step_count == 2
    exp.close()


def test_the_error_itself_says_what_would_help(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    exp.card = CONTEXT_BYTES + 48 * MIB
    with pytest.raises(torch.OutOfMemoryError) as raised:
        exp.run(epochs=1, wait=True)
    notes = "\n".join(getattr(raised.value, "__notes__", ()))
    assert exp.failure is not None
    first = exp.failure.remedies[0]
    assert first.name in notes
    assert first.code.splitlines()[0] in notes
    assert "exp.resume()" in notes
    exp.close()


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (0, ValueError, "CUDA itself takes about 512 MiB"),
        (-5, ValueError, "CUDA itself takes about 512 MiB"),
        ("0 GiB", ValueError, "CUDA itself takes about 512 MiB"),
        ("RTX 9999", ValueError, "known are T4, RTX A4000"),
        ("", ValueError, "or give an amount such as '8 GiB'"),
        (8.5, TypeError, "a name, an amount such as '8 GiB' or bytes, got float"),
        (True, TypeError, "got bool"),
        (CONTEXT_BYTES + 4096, ValueError, "choose a larger GPU"),
        ("8 GiB, expandable_segments:Perhaps", ValueError, "cannot be 'Perhaps'"),
        ("8 GiB, max_split_size_mb:1", ValueError, "at least 20 MiB"),
    ],
)
def test_a_gpu_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, bad: Any, error: type[Exception], said: str
) -> None:
    exp = experiment(tmp_path, "transformer")
    with pytest.raises(error, match=said):
        exp.card = bad
    assert exp.card is None
    exp.step(1).wait(120)
    assert exp.status == "paused"
    exp.close()
