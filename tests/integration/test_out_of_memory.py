"""Memory runs out on a simulated card: the run survives, and what is ranked first really helps."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.models.recurrent import LSTMLoop
from tests.models.vit import ViT
from workbench.allocator.cards import CONTEXT_BYTES
from workbench.experiment import Experiment, RunError, out_of_memory
from workbench.experiment.checkpoint import snapshot
from workbench.experiment.events import Event, StatusChanged
from workbench.memory.cards import remedies
from workbench.memory.cards.card_player import PlayedCard
from workbench.memory.cards.out_of_memory import OutOfMemoryTool
from workbench.panel import commands
from workbench.records import MemoryRecord

MIB = 2**20
BATCH = 48


@pytest.fixture(autouse=True)
def _tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a busy machine everything is tried all the same."""
    monkeypatch.setattr(remedies, "BUDGET_S", 120.0)
    before = list(out_of_memory._tools)
    out_of_memory.register(OutOfMemoryTool)
    yield
    out_of_memory._tools[:] = before


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


class CNN(nn.Module):
    """Running statistics and dropout: what a trial must put back is in it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.Sequential(*(Stage(width) for _ in range(4)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def images(count: int = 4 * BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 3, 24, 24), torch.arange(count) % 10


def sequences(count: int = 4 * BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 24, 16), torch.arange(count) % 10


def cnn() -> tuple[nn.Module, Any]:
    return CNN(), images()


def transformer() -> tuple[nn.Module, Any]:
    return ViT(side=24, patch=6, width=64, depth=4, heads=4, classes=10), images()


def lstm() -> tuple[nn.Module, Any]:
    return LSTMLoop(hidden=96), sequences()


MODELS = {"CNN": cnn, "transformer": transformer, "LSTM": lstm}


def experiment(folder: Path, kind: str, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model, data = MODELS[kind]()
    val = tuple(part[:BATCH] for part in data)
    chosen = {"val": val, "batch_size": BATCH, "device": "cpu", "runs": folder, **options}
    return Experiment(model, data, **chosen)


def needed(folder: Path, kind: str, **options: Any) -> int:
    """Bytes reserved at the peak where a card has room for all of it."""
    exp = experiment(folder, kind, **options)
    exp.card = "8 GiB"
    exp.run(epochs=1, wait=True)
    peak = exp.card_use.peak_reserved if exp.card_use else 0
    exp.close()
    return peak


def refused(exp: Experiment, usable: int) -> MemoryRecord:
    """Run it on a card with so many bytes to give, until it has failed and remedies were tried."""
    exp.card = CONTEXT_BYTES + usable
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(epochs=2, wait=True)
    assert exp.failure is not None
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    return record


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
    tmp_path: Path, kind: str, room: float
) -> None:
    usable = int(needed(tmp_path, kind) * room) // MIB * MIB
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
    assert "test_" in failure.source.filename or "models" in failure.source.filename
    assert any(line.current for line in failure.code)
    assert [fact.label for fact in failure.memory][:2] == ["Asked for", "Card"]
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


@pytest.mark.parametrize("row", [1, 2])
def test_every_remedy_that_fits_does(tmp_path: Path, row: int) -> None:
    exp = experiment(tmp_path, "CNN", optimizer=lambda p: torch.optim.Adam(p, foreach=True))
    record = refused(exp, 48 * MIB)
    fitting = [remedy for remedy in record.remedies if remedy.fits]
    if row >= len(fitting):
        pytest.skip(f"{len(fitting)} remedies fit")
    exec(fitting[row].code, {"exp": exp})
    exp.resume().wait(240)
    assert exp.status == "finished", (fitting[row], exp.failure)
    exp.close()


def test_trials_leave_no_trace_in_what_the_run_computes(tmp_path: Path) -> None:
    """A run that failed, had everything tried, and goes on with a larger card, against a plain one.

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
    card = exp._training.card
    assert isinstance(card, PlayedCard)
    card.ledger.next_step()
    own = sum(p.nbytes for p in exp.model.parameters())
    assert card.ledger.allocated < 4 * own + MIB, "weights, gradients, moments at most"
    assert not [thread for thread in threading.enumerate() if "workbench" in thread.name]
    exp.close()


# -- while remedies are being tried ----------------------------------------------------------


class Slow(nn.Module):
    """Takes a while at every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256)) for _ in range(8)))
        self.head = nn.Linear(256, 10)
        self.pause_s = 0.03

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            time.sleep(self.pause_s)
        return self.head(x)


def slow(folder: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(4096, 256), torch.arange(4096) % 10
    exp = Experiment(Slow(), data, batch_size=2048, device="cpu", runs=folder)
    exp.card = CONTEXT_BYTES + 40 * MIB
    return exp


def fail(exp: Experiment) -> None:
    exp.run(epochs=1)
    until = time.monotonic() + 60
    while exp.status in ("idle", "training"):
        assert time.monotonic() < until
        time.sleep(0.005)
    assert exp.failure is not None


def test_the_failure_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    fail(exp)
    assert exp.status == "exception"
    assert exp.failure is not None
    assert not exp.failure.remedies
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    assert len(record.oom_event) == 1
    assert not record.remedies
    while "trying" not in exp.message:
        time.sleep(0.005)
    exp.wait(60)
    assert exp.failure.remedies
    assert "It would fit with" in exp.message
    later = exp.captures.get(exp.failure.capture)
    assert isinstance(later, MemoryRecord)
    assert later.remedies
    exp.close()


def test_who_stops_as_the_failure_is_told_has_nothing_tried(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    said: list[str] = []

    def stop(event: Event) -> None:
        if isinstance(event, StatusChanged):
            said.append(event.message)
            if event.status == "exception":
                exp.stop()

    exp.subscribe(stop)
    exp.run(epochs=1)
    exp.wait(60)
    assert (exp.status, exp.failure) == ("stopped", None)
    assert not any("trying" in message for message in said)
    exp.close()


@pytest.mark.parametrize("what", ["stop", "close", "resume", "run", "step", "pause"])
def test_who_acts_meanwhile_does_not_wait(tmp_path: Path, what: str) -> None:
    exp = slow(tmp_path)
    fail(exp)
    while "trying" not in exp.message:
        time.sleep(0.005)
    if what in ("resume", "run", "step"):
        exp.batch_size = 128
        exp.model.pause_s = 0.0
    started = time.monotonic()
    getattr(exp, what)()
    if what in ("stop", "pause"):
        exp.wait(60)
    assert time.monotonic() - started < 5, "the trial under way is given up"
    exp.wait(60)
    wanted = {"stop": "stopped", "close": "exception", "pause": "exception", "step": "paused"}
    assert exp.status == wanted.get(what, "finished")
    assert not exp._training.rehearsing
    exp.close()


def test_a_setting_that_changes_meanwhile_ends_the_trials(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    fail(exp)
    while "trying" not in exp.message:
        time.sleep(0.005)
    exp.modes = "bf16"
    exp.wait(60)
    assert exp.modes == "bf16"
    assert exp.failure is not None
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    assert any(note.startswith("Not tried: ") for note in record.notes)
    exp.close()


def test_what_there_was_no_time_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "BUDGET_S", 0.2)
    exp = slow(tmp_path)
    started = time.monotonic()
    with pytest.raises(RunError):
        exp.run(epochs=1).wait(60)
    assert time.monotonic() - started < 20
    assert exp.failure is not None
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    said = [note for note in record.notes if note.startswith("Not tried: ")]
    assert len(said) == 1
    assert "bf16" in said[0]
    assert not any(remedy.name == "bf16" for remedy in record.remedies)
    exp.close()


# -- other ways to run out --------------------------------------------------------------------


def test_validation_that_does_not_fit_gets_remedies_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = CNN()
    val = images(512)
    exp = Experiment(model, images(32), val, batch_size=8, device="cpu", runs=tmp_path)
    exp.val_batch_size = 512
    exp.card = CONTEXT_BYTES + 24 * MIB
    with pytest.raises(RunError, match="validation after step 4"):
        exp.run(epochs=1).wait(120)
    assert exp.failure is not None
    names = [remedy.name for remedy in exp.failure.remedies]
    assert not any("checkpoint" in name or name.startswith("batch") for name in names)
    smaller = next(one for one in exp.failure.remedies if one.name.startswith("validation batch"))
    assert smaller.fits
    assert smaller.code == f"exp.val_batch_size = {exp.failure.remedies[-1].name.split()[-1]}" or (
        smaller.code.startswith("exp.val_batch_size = ")
    )
    exec(smaller.code, {"exp": exp})
    exp.resume().wait(120)
    assert exp.status == "finished"
    assert exp.step_count == 4
    exp.close()


def test_batches_that_come_ready_made_are_left_as_they_are(tmp_path: Path) -> None:
    x, y = images(64)
    batches = [(x[:32], y[:32]), (x[32:], y[32:])]
    exp = Experiment(CNN(), batches, device="cpu", runs=tmp_path)
    record = refused(exp, 6 * MIB)
    assert not any(remedy.name.startswith("batch") for remedy in record.remedies)
    assert any("batches come ready-made" in note for note in record.notes)
    exp.close()


class Stubborn(CNN):
    """Takes batches of one size only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.reshape(BATCH, 3, 24, 24))


def test_what_a_model_raises_under_a_change_is_said_with_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    exp = Experiment(Stubborn(), images(BATCH), batch_size=BATCH, device="cpu", runs=tmp_path)
    record = refused(exp, 24 * MIB)
    smaller = next(one for one in record.remedies if one.name.startswith("batch"))
    assert not smaller.fits
    assert "RuntimeError: shape" in smaller.basis
    exp.card = None
    exp.resume().wait(60)
    assert exp.status == "finished"
    exp.close()


def test_workers_and_collation_of_a_loader_are_used(tmp_path: Path) -> None:
    data = [(row, int(label)) for row, label in zip(*images(96), strict=True)]
    loader = DataLoader(data, 48, shuffle=True, num_workers=2)  # type: ignore[arg-type]
    exp = Experiment(CNN(), loader, device="cpu", runs=tmp_path)
    record = refused(exp, 10 * MIB)
    smaller = next(one for one in record.remedies if one.name.startswith("batch"))
    exec(smaller.code, {"exp": exp})
    exp.resume().wait(120)
    assert exp.status == "finished"
    exp.close()


def test_a_remedy_can_be_applied_by_its_number(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    with pytest.raises(ValueError, match="none, as nothing was tried"):
        exp.apply_remedy()
    refused(exp, 48 * MIB)
    with pytest.raises(ValueError, match="there is no remedy 99"):
        exp.apply_remedy(99)
    exp.apply_remedy()
    exp.resume().wait(120)
    assert exp.status == "finished"
    exp.close()


def test_the_panel_applies_a_remedy_and_goes_on(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    refused(exp, 48 * MIB)
    for bad in (True, "0", None, 1.5):
        with pytest.raises(commands.CommandError, match="the number of a remedy"):
            commands.execute(exp, "apply_remedy", {"index": bad})
    with pytest.raises(ValueError, match="there is no remedy -1"):
        commands.execute(exp, "apply_remedy", {"index": -1})
    commands.execute(exp, "apply_remedy", {"index": 0})
    exp.wait(120)
    assert exp.status == "finished"
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
        (CONTEXT_BYTES + 4096, ValueError, "choose a larger card"),
        ("8 GiB, expandable_segments:Perhaps", ValueError, "cannot be 'Perhaps'"),
        ("8 GiB, max_split_size_mb:1", ValueError, "at least 20 MiB"),
    ],
)
def test_a_card_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, bad: Any, error: type[Exception], said: str
) -> None:
    exp = experiment(tmp_path, "transformer")
    with pytest.raises(error, match=said):
        exp.card = bad
    assert exp.card is None
    exp.step(1).wait(60)
    assert exp.status == "paused"
    exp.close()


def test_what_was_tried_and_does_not_fit_is_not_applied(tmp_path: Path) -> None:
    """What the training holds by now is more than the card: no batch helps."""
    exp = Experiment(
        nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)),
        (torch.randn(64, 512), torch.arange(64) % 3),
        batch_size=16,
        runs=tmp_path,
    )
    exp.run(steps=1, wait=True)
    exp.card = f"{512 + 3} MiB"
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(steps=1, wait=True)
    exp.wait()
    assert exp.failure is not None
    assert not any(remedy.fits for remedy in exp.failure.remedies)
    with pytest.raises(ValueError, match=r"does not fit; .* choose a larger card"):
        exp.apply_remedy()
    assert (exp.batch_size, exp.modes) == (16, "fp32")
    exp.card = "T4"
    exp.resume()
    exp.wait()
    assert exp.step_count >= 2
