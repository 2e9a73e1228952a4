"""An experiment whose steps ranks compute: captures, faults and ends, as a user has them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.integration.parallel.support import Net, Tokens, losses, made, rows, sentences
from tests.integration.parallel.test_faults import Faulty, NotFinite, assert_gone
from tests.waiting import wait_until
from workbench.experiment import Experiment, Run, RunError
from workbench.experiment.report.events import EpochDone, Event
from workbench.gradient_flow.log import ELSEWHERE, gradient_flow
from workbench.graph import GraphProbe
from workbench.parallel.exchange.files import Folder
from workbench.parallel.rank import reporter
from workbench.parallel.session import mirror
from workbench.parallel.transfer.job_pickle import PackingError


def under_way(experiment: Experiment, step: int = 5) -> Run:
    """A run whose ranks have reported so many steps."""
    reached = threading.Event()
    experiment.subscribe(lambda event: event.step >= step and reached.set(), every_step=True)
    run = experiment.run(steps=100_000)
    assert reached.wait(120)
    return run


def ranks_of(experiment: Experiment) -> list[psutil.Process]:
    newest = max((experiment.path / "parallel").iterdir(), key=lambda path: int(path.name))
    folder = Folder(newest)
    return [psutil.Process(int(folder.pid(rank).read_text())) for rank in (0, 1)]


@pytest.mark.usefixtures("forked_ranks")
def test_what_a_rank_raises_is_the_failure_of_the_experiment(tmp_path: Path) -> None:
    experiment = made(tmp_path, Faulty, modes="ddp:2")
    with pytest.raises(RunError, match="this batch has no name"):
        experiment.run(steps=50).wait(120)
    failure = experiment.failure
    assert failure is not None
    assert experiment.status == "exception"
    assert failure.subtitle.startswith("It was raised on rank 1. Weights and optimizer are those")
    assert failure.source is not None
    assert failure.title == f"test_faults.py:{failure.source.line}: ValueError"
    assert (failure.source.text, failure.source.function) == (
        'raise ValueError("this batch has no name")', "Faulty.forward",
    )  # fmt: skip
    assert [line.text for line in failure.code if line.current]
    assert failure.traceback.rstrip().endswith("ValueError: this batch has no name")
    assert experiment.step_count == failure.step - 1
    assert gradient_flow(experiment).notes == (ELSEWHERE,)
    experiment.modes = ""
    experiment.run(steps=3, wait=True)


def test_a_rank_that_is_killed_costs_what_it_did_since_the_last_checkpoint(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="fsdp:2")
    experiment.modes = ""
    experiment.run(steps=4, wait=True)
    kept = [parameter.clone() for parameter in experiment.model.parameters()]
    experiment.modes = "fsdp:2"
    run = under_way(experiment, 10)
    ranks = ranks_of(experiment)
    ranks[1].send_signal(signal.SIGKILL)
    with pytest.raises(RunError, match="rank 1 was ended from outside"):
        run.wait(120)
    assert_gone(ranks)
    assert experiment.failure is not None
    assert experiment.failure.title == "A worker died"
    assert experiment.step_count == 4
    assert all(map(torch.equal, experiment.model.parameters(), kept))
    # it goes on from there, and steps that are done again are reported again
    experiment.modes = ""
    experiment.resume_from_failure()
    experiment.pause()
    experiment.wait(120)


@pytest.mark.usefixtures("forked_ranks")
def test_a_run_directory_that_is_removed_leaves_the_training_as_it_left(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net)
    experiment.run(steps=3, wait=True)
    experiment.modes = "ddp:2"
    run = under_way(experiment, 10)
    while (experiment.path / "parallel").exists():  # ranks write there meanwhile
        shutil.rmtree(experiment.path / "parallel", ignore_errors=True)
    run.pause()
    with pytest.raises(RunError, match=r"No such file|no complete checkpoint"):
        run.wait(120)
    assert experiment.status == "exception"
    assert experiment.step_count == 3
    assert experiment._training.cursor.index == 3
    experiment.modes = ""
    experiment.run(steps=2, wait=True)
    assert experiment.step_count == 5


@pytest.mark.usefixtures("forked_ranks")
def test_a_loss_that_is_not_finite_pauses_it_and_the_batch_is_left_out(tmp_path: Path) -> None:
    experiment = made(tmp_path, NotFinite, modes="ddp:2")
    with pytest.raises(RunError, match="became NaN at step"):
        experiment.run(steps=8).wait(120)
    assert experiment.status == "nan"
    step = experiment.step_count
    assert experiment.failure is not None
    assert experiment.failure.step == step + 1
    position = experiment._training.cursor.index
    experiment.modes = ""
    experiment._training.cursor.take()
    experiment._training.cursor.skip()
    assert experiment._training.cursor.index == position + 1


def test_what_cannot_be_packed_is_reported_before_a_process_is_started(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="ddp:2")
    experiment.model.blocks[1].guard = threading.Lock()
    with pytest.raises(PackingError, match=r"model\.blocks\.1\.guard is a _thread\.lock"):
        experiment.run(steps=5, wait=True)
    assert experiment.status == "exception"
    experiment.modes = ""
    experiment.resume_from_failure().wait(120)
    assert experiment.step_count == 5


@pytest.mark.usefixtures("forked_ranks")
def test_a_capture_is_computed_in_the_kernel_and_costs_no_step(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="ddp:2")
    run = under_way(experiment)
    record = experiment.capture(GraphProbe()).wait(120)
    assert record is not None
    assert record.nodes
    assert any("computed for the capture" in note for note in record.notes)
    run.pause()
    run.wait(120)
    steps = experiment.scalars.since("train/loss", 0)[0].tolist()
    assert steps == list(range(1, experiment.step_count + 1))


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_validate_together_and_find_what_one_process_finds(tmp_path: Path) -> None:
    """Eleven batches for two ranks, and labels of which a third does not count."""
    ids, labels = sentences()
    val = ids[:170], labels[:170]
    found: list[list[torch.Tensor]] = []
    for modes in ("", "ddp:2", "fsdp:2"):
        experiment = made(
            tmp_path, Tokens, data=(ids, labels), val=val, modes=modes, batch_size=16, lr=0.01
        )
        tables: list[torch.Tensor] = []

        def on_event(event: Event, tables: list[torch.Tensor] = tables) -> None:
            if isinstance(event, EpochDone):
                tables.append(torch.tensor([] if event.confusion is None else event.confusion))

        experiment.subscribe(on_event)
        experiment.run(epochs=2, wait=True)
        metrics = experiment.scalars.history()
        values = [
            torch.from_numpy(metrics[f"val/{name}"]["value"]) for name in ("loss", "accuracy")
        ]
        found.append([*values, *tables])
        assert experiment.best_accuracy == max(values[1].tolist())
        assert experiment.epoch == 2
    for ranks in found[1:]:
        for ours, alone in zip(ranks, found[0], strict=True):
            torch.testing.assert_close(ours, alone, rtol=1e-5, atol=0)


def of_ones_own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """With a divisor of its own, and a label that counts nowhere."""
    return cross_entropy(logits, labels, ignore_index=2).square()


@pytest.mark.usefixtures("forked_ranks")
def test_of_a_loss_of_ones_own_ranks_find_what_one_process_finds(tmp_path: Path) -> None:
    found: list[tuple[float, float]] = []
    for modes in ("", "ddp:2"):
        experiment = made(tmp_path, Net, val=rows(), modes=modes, loss=of_ones_own, lr=1e-9)
        experiment.run(epochs=1, wait=True)
        found.append(tuple(experiment.scalars.last(f"val/{it}")[0] for it in ("loss", "accuracy")))
        assert not any(note.startswith("val/loss") for note in experiment.notes)
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.usefixtures("forked_ranks")
def test_a_confusion_matrix_is_that_of_all_ranks(tmp_path: Path) -> None:
    tables: list[torch.Tensor] = []
    for modes in ("", "fsdp:2"):
        experiment = made(tmp_path, Net, val=rows(), modes=modes)
        experiment.subscribe(
            lambda event: isinstance(event, EpochDone) and tables.append(event.confusion)
        )
        experiment.run(epochs=1, wait=True)
    assert tables[0].sum() == 203
    assert torch.equal(*tables)


class Thorough(Net):
    """On ranks, validates for as long as there is a file, and tells every moment that it does."""

    def __init__(self, hold: Path) -> None:
        super().__init__()
        self.hold, self.held = hold, hold.with_name("held")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training and "RANK" in os.environ:
            reporter._AT_WORK_S = 0.1
            while self.hold.exists():
                self.held.touch()
                time.sleep(0.02)
        return super().forward(x)


@pytest.mark.usefixtures("forked_ranks")
def test_a_long_validation_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than it would be if its ranks reported nothing."""
    limit_s = 10.0
    monkeypatch.setattr(mirror, "_SILENCE_LIMIT_S", limit_s)
    hold, inputs, targets = tmp_path / "hold", *rows()
    data, val = (inputs[:32], targets[:32]), (inputs[:16], targets[:16])
    experiment = made(tmp_path, lambda: Thorough(hold), data, batch_size=32, val=val, modes="ddp:2")
    run = experiment.run(epochs=1_000_000)
    wait_until(lambda: experiment.step_count, "a step")
    hold.touch()
    wait_until(hold.with_name("held").exists, "a validation")
    run.stop()
    said: list[float] = []

    def is_waited_for() -> bool:
        words = r"waiting for ddp:2, whose first rank ends an epoch \((\d+) s\)"
        said.extend(map(float, re.findall(words, experiment.message)))
        return bool(said) and said[-1] > said[0] + limit_s + 2

    try:
        wait_until(is_waited_for, "a validation that lasts")
    finally:
        hold.unlink()
    wait_until(lambda: run.status == "stopped", "the end")
    assert experiment.step_count == len(Run(experiment).metrics["val/loss"]["value"])


class Branching(Net):
    """Asks its data which blocks it takes, so that ranks take different paths."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = x[:, 0].mean()
        x = self.stem(x)
        for at, block in enumerate(self.blocks):
            if value * (-1) ** at > 0:
                x = block(x)
        return self.head(x)


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("modes", ["", "compile+"])
def test_ranks_may_branch_differently(tmp_path: Path, modes: str) -> None:
    found: list[torch.Tensor] = []
    for layout in ("ddp:2", "fsdp:2", "fsdp:2,keep"):
        if modes and layout == "fsdp:2,keep":
            continue
        experiment = made(tmp_path, Branching, modes=modes + layout, optimizer="adamw", lr=0.01)
        experiment.run(steps=30, wait=True)
        found.append(losses(experiment))
        value = any("reads values of its data" in note for note in experiment.notes)
        assert value == layout.startswith("fsdp")
    for ours in found[1:]:
        torch.testing.assert_close(ours, found[0], rtol=1e-5, atol=1e-6)


def test_closing_it_ends_its_ranks(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="fsdp:2")
    under_way(experiment)
    ranks = ranks_of(experiment)
    experiment.close()
    assert_gone(ranks)
    assert experiment.step_count >= 5
    left = {path.name for path in (experiment.path / "parallel" / "1").iterdir()}
    assert {"events.jsonl", "log.txt"} <= left
    assert not left & {"payload.pkl", "start", "last"}, "a toggle leaves gigabytes behind"


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_tell_of_themselves(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="fsdp:2")
    run = under_way(experiment, 80)
    run.pause()
    run.wait(120)
    reported = experiment.modeset["parallel"].so_far()
    assert "rank 0: " in reported
    assert "rank 1: " in reported
    assert "all_gather of " in reported
    names = experiment.scalars.names()
    assert {"parallel/rank 0 samples_per_s", "parallel/rank 1 memory_mib"} <= set(names)
    assert experiment.samples_per_s is not None
    assert experiment.timings.max_abs_delta_logit("fsdp:2") == pytest.approx(0.0, abs=1e-6)
