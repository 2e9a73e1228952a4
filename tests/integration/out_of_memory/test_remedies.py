"""What is ranked first really helps, and what was tried leaves no trace."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.integration.out_of_memory.support import (
    MIB,
    MODELS,
    experiment,
    refused,
)
from tests.saved_training import snapshot
from workbench.experiment import Experiment
from workbench.experiment.failure import out_of_memory


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    """Bytes reserved at the peak where a GPU has room for all of it."""

    @functools.cache
    def of(kind: str) -> int:
        exp = experiment(tmp_path_factory.mktemp(kind), kind)
        exp.card = "8 GiB"
        exp.run(epochs=1, wait=True)
        peak = exp.card_use.peak_reserved if exp.card_use else 0
        exp.close()
        return peak

    return of


def state(exp: Experiment) -> dict[str, Any]:
    return snapshot(exp._training)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(a == b)


@pytest.mark.parametrize("room", [0.55, 0.8])
@pytest.mark.parametrize("kind", MODELS)
def test_the_first_remedy_lets_the_run_finish_under_the_same_limit(
    tmp_path: Path, needed: Callable[[str], int], kind: str, room: float
) -> None:
    usable = int(needed(kind) * room) // MIB * MIB
    exp = experiment(tmp_path, kind)
    before: list[dict[str, Any]] = [state(exp)]

    def keep(_event: object) -> None:
        before[:] = [state(exp)]

    exp.subscribe(keep, every_step=True)
    record = refused(exp, usable)
    assert exp.status == "exception"
    assert alike({**state(exp), "torch_rng": 0}, {**before[0], "torch_rng": 0})
    failure = exp.failure
    assert failure is not None
    assert failure.source is not None
    assert failure.source.filename == inspect.getsourcefile(type(exp.model))
    assert any(line.current for line in failure.code)
    assert [fact.label for fact in failure.memory][:2] == ["Requested", "GPU"]
    assert len(record.oom_event) == 1
    assert record.card_bytes == usable
    assert failure.remedies == record.remedies[: out_of_memory.MOST_SHOWN]
    fitting = [remedy for remedy in record.remedies if remedy.fits]
    assert fitting, record.remedies
    assert list(record.remedies[: len(fitting)]) == fitting, "those that fit are first"
    assert all(0 < remedy.peak_bytes <= usable for remedy in fitting)
    assert all(remedy.peak_bytes == -1 for remedy in record.remedies[len(fitting) :])
    assert all(remedy.cost and remedy.basis and remedy.code for remedy in record.remedies)
    card = str(exp.card).partition(",")[0]
    exec(fitting[0].code, {"exp": exp})
    exp.resume().wait(240)
    assert exp.status == "finished", exp.failure
    assert str(exp.card).partition(",")[0] == card
    assert exp.epoch == 2
    use = exp.card_use
    assert use is not None
    assert use.peak_reserved <= usable
    exp.close()


@pytest.mark.parametrize("kind", ["bf16", "checkpoint", "batch"])
def test_every_remedy_that_fits_does(tmp_path: Path, kind: str) -> None:
    exp = experiment(tmp_path, "CNN", optimizer=lambda p: torch.optim.Adam(p, foreach=True))
    fitting = [remedy for remedy in refused(exp, 48 * MIB).remedies if remedy.fits]
    assert [remedy.name.split()[0] for remedy in fitting] == ["bf16", "checkpoint", "batch"]
    remedy = next(remedy for remedy in fitting if remedy.name.startswith(kind))
    exec(remedy.code, {"exp": exp})
    exp.resume().wait(240)
    assert exp.status == "finished", (remedy, exp.failure)
    exp.close()


def test_trials_leave_no_trace_in_what_the_run_computes(tmp_path: Path) -> None:
    """A run that failed, had everything tried, and goes on with a larger GPU, against a plain one.

    Dropout draws, batch norm counts, Adam remembers: bit by bit the same losses.
    """
    plain, tried = experiment(tmp_path, "CNN"), experiment(tmp_path, "CNN")
    plain.run(epochs=2, wait=True)
    record = refused(tried, 48 * MIB)
    assert len(record.remedies) >= 4
    tried.card = "8 GiB"
    tried.resume().wait(240)
    for exp in (plain, tried):
        exp.scalars.flush()
    for name in ("train/loss", "val/loss"):
        a, b = (exp.scalars.since(name, 0)[1] for exp in (plain, tried))
        assert np.array_equal(a, b), name
    mine, other = state(plain), state(tried)
    assert alike(mine["model"], other["model"])
    assert alike(mine["optimizer"], other["optimizer"])
    for exp in (plain, tried):
        exp.close()
