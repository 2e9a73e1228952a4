"""What goes wrong in workers, or around them: what is reported, and what is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from tests.fork_server import ForkServer
from tests.integration.parallel.support import DEADLINE_S, Net, made, until, until_reported
from tests.integration.scripts import environment
from tests.waiting import wait_until
from workbench.experiment import Experiment
from workbench.experiment.control import RunError
from workbench.experiment.data.sources import DataError
from workbench.modes.layout.layout import Layout
from workbench.parallel.exchange.files import Folder
from workbench.parallel.exchange.stream import Message
from workbench.parallel.session.session import Session, WorkersError
from workbench.parallel.transfer.checkpoint import load
from workbench.parallel.transfer.job_pickle import PackingError


class Faulty(Net):
    """Its fourth step in progress fails on rank 1 alone; the first batch is computed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 5 and os.environ.get("RANK") == "1":
            raise ValueError("this batch has no name")
        return super().forward(x)


class NotFinite(Net):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 5 and os.environ.get("RANK") == "1":
            x = x * float("nan")  # of the data: the graph of the step stays the same
        return super().forward(x)


def sent(
    tmp_path: Path, model: Callable[[], nn.Module] = Net, **settings: Any
) -> tuple[Experiment, Session]:
    experiment = made(tmp_path / "runs", model)
    training = experiment._training
    training.begin()
    layout, plan = Layout.parse("ddp:2"), until(10_000_000)
    session = Session.send(training, tmp_path / "parallel", layout, plan, **settings)
    training.end()
    return experiment, session


def ranks_of(folder: Folder) -> list[psutil.Process]:
    wait_until(lambda: all(folder.pid(rank).is_file() for rank in (0, 1)), "two ranks")
    return [psutil.Process(int(folder.pid(rank).read_text())) for rank in (0, 1)]


def death_of(session: Session) -> WorkersError:
    with pytest.raises(WorkersError) as caught:
        wait_until(lambda: list(session.news()) and False, "an end")
    return caught.value


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=120)
    assert not alive, f"{alive} are left"


@pytest.mark.usefixtures("forked_ranks")
def test_what_one_rank_raises_is_what_is_reported_and_the_other_ends(tmp_path: Path) -> None:
    experiment, session = sent(tmp_path, Faulty)
    before = [parameter.clone() for parameter in experiment.model.parameters()]
    try:
        ranks = ranks_of(session.folder)
        error = death_of(session)
        assert str(error) == "rank 1: ValueError: this batch has no name"
        assert error.fault is not None
        assert "in Faulty.forward" in error.fault.traceback
        assert error.checkpoint == session.folder.start
        assert_gone(ranks)
    finally:
        session.close()
    for ours, old in zip(experiment.model.parameters(), before, strict=True):
        assert torch.equal(ours, old)
    experiment.run(steps=2, wait=True)  # what is here goes on from where it left


@pytest.mark.usefixtures("forked_ranks")
def test_a_loss_that_is_not_finite_on_one_rank_ends_all_with_the_last_good_state(
    tmp_path: Path,
) -> None:
    experiment, session = sent(tmp_path, NotFinite)
    messages: list[Message] = []
    try:
        until_reported(session, "end", messages)
        session.bring_back(experiment._training)
    finally:
        session.close()
    assert session.ended == "nan"
    assert [one["word"] for one in messages if one["type"] == "non-finite"] == ["NaN"]
    assert experiment.step_count == 4, "the forward that warms up is undone, its call too"
    assert all(parameter.isfinite().all() for parameter in experiment.model.parameters())


def test_a_rank_that_is_killed_is_named_and_the_checkpoint_kept(tmp_path: Path) -> None:
    experiment, session = sent(tmp_path, save_every_s=1)
    try:
        ranks = ranks_of(session.folder)
        until_reported(session, "saved", [])
        ranks[1].send_signal(signal.SIGKILL)
        error = death_of(session)
        assert str(error).startswith("rank 1 was ended from outside")
        assert error.checkpoint == session.folder.last
        assert_gone(ranks)
        session.bring_back(experiment._training)
    finally:
        session.close()
    assert experiment.step_count > 0
    experiment.run(steps=2, wait=True)


@pytest.mark.usefixtures("forked_ranks")
def test_a_checkpoint_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    experiment, session = sent(tmp_path, save_every_s=0)
    messages: list[Message] = []
    draft = session.folder.last.with_name("last.part")
    try:
        until_reported(session, "saved", messages)
        shutil.rmtree(draft, ignore_errors=True)
        while True:  # between two checkpoints there is no draft, and room for what takes its place
            with contextlib.suppress(OSError):
                draft.touch(exist_ok=False)
                break
        refused = until_reported(session, "not-saved", messages)
        assert refused["why"].startswith(
            f"no checkpoint could be written to {session.folder.shown / 'last'}: "
        )
        assert session.folder.latest is not None
        draft.unlink()
        assert until_reported(session, "saved", messages)["step"] > refused["step"]
        session.command("recall")
        last = until_reported(session, "end", messages)
        assert last["how"] == "recalled"
        session.bring_back(experiment._training)
    finally:
        session.close()
    saved = [one["step"] for one in messages if one["type"] == "saved"]
    assert experiment.step_count == saved[-1]
    experiment.run(steps=2, wait=True)


def test_ranks_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    _, session = sent(tmp_path)
    try:
        ranks = ranks_of(session.folder)
        os.kill(session.pid, signal.SIGKILL)
        assert "ended from outside" in str(death_of(session))
        assert_gone(ranks)
    finally:
        session.close()


def test_ranks_outlive_the_kernel_and_leave_what_they_reached(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """The model's class exists in the dead process alone, as one of a notebook does."""
    script = tmp_path / "kernel.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            from pathlib import Path
            import torch
            from torch import nn
            from tests.integration.parallel.support import rows
            from workbench.experiment import Experiment
            from workbench.experiment.loop.stop_condition import Plan
            from workbench.modes.layout.layout import Layout
            from workbench.parallel.session.session import Session

            class Cell(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(16, 5)
                def forward(self, x):
                    return self.layer(x)

            torch.manual_seed(0)
            root = Path(sys.argv[1])
            exp = Experiment(Cell(), rows(), batch_size=16, runs=root / "runs", device="cpu")
            training = exp._training
            training.begin()
            layout, plan = Layout.parse("ddp:2"), Plan(until_step=40)
            session = Session.send(training, root / "parallel", layout, plan)
            print(session.folder.shown, flush=True)
            os.kill(os.getpid(), 9)
            """
        )
    )
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    kernel = fork_server.script(script, str(tmp_path), env=environment(), stdout=out, stderr=err)
    assert kernel.wait(DEADLINE_S) == -signal.SIGKILL, err.read_text()
    folder = Folder(Path(out.read_text().strip()))
    ranks = ranks_of(folder)
    assert_gone(ranks)
    wait_until(folder.last.is_dir, "a checkpoint")

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    stayed = made(tmp_path / "runs", Cell, optimizer="adamw")
    stayed.run(steps=40, wait=True)
    back = made(tmp_path / "runs", Cell, optimizer="adamw")
    folder.take_session()
    load(back._training, folder.last, folder.seal)
    assert back.step_count == 40
    for ours, plain in zip(back.model.parameters(), stayed.model.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    experiment = made(tmp_path)
    experiment.model.blocks[1].guard = [{"lock": __import__("threading").Lock()}]
    with pytest.raises(
        PackingError, match=r"model\.blocks\.1\.guard\[0\]\['lock'\] is a _thread\.lock"
    ):
        sent_again(experiment, tmp_path)
    experiment.run(steps=1, wait=True)


def test_ranks_that_cannot_be_started_say_what_was_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'the address is in use' >&2\nexit 3\n")
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        _, session = sent(tmp_path)
    try:
        assert str(death_of(session)).startswith(
            "the ranks could not be started (status 3): the address is in use. What was printed"
        )
    finally:
        session.close()


def test_data_in_an_order_of_its_own_is_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    inputs, targets = made(tmp_path)._training.cursor.source.inputs, torch.zeros(203).long()
    experiment = made(tmp_path, data=[(inputs[:8], targets[:8]), (inputs[8:16], targets[8:16])])
    with pytest.raises(DataError, match="batches of list come in an order of their own"):
        sent_again(experiment, tmp_path)
    assert not (tmp_path / "parallel").exists()


def sent_again(experiment: Experiment, tmp_path: Path) -> Session:
    training = experiment._training
    training.begin()
    try:
        return Session.send(training, tmp_path / "parallel", Layout.parse("ddp:2"), until(10_000))
    finally:
        training.end()


class Scaled(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs * self.scale, labels)


def test_a_refusal_in_a_run_is_one_sentence(tmp_path: Path) -> None:
    model, loss = Net(), Scaled()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.01)
    experiment = made(tmp_path / "runs", lambda: model, optimizer=optimizer, loss=loss)
    reached = threading.Event()
    experiment.subscribe(lambda event: reached.set(), every_step=True)
    run = experiment.run(epochs=1_000)
    assert reached.wait(DEADLINE_S)
    experiment.modes = "ddp:2"
    with pytest.raises(RunError) as raised:
        run.wait(DEADLINE_S)
    failure = experiment.failure
    assert failure is not None
    assert "the optimizer trains 1 parameter that is not the model's" in failure.message
    assert failure.traceback == ""
    assert str(raised.value) == f"{failure.title}\n{failure.message}"
    step = experiment.step_count
    experiment.modes = ""
    experiment.resume_from_failure()
    experiment.pause()
    experiment.wait(DEADLINE_S)
    assert experiment.step_count >= step
