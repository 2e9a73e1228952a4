"""What hooks keep is as it was after a step that was computed and undone."""

from __future__ import annotations

import itertools
import random
import sys
import types
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tests.integration.parallel.support import Meter, Net, made
from workbench.experiment import Experiment
from workbench.experiment.loop.step_undo import rehearse
from workbench.experiment.state import hook_copy
from workbench.experiment.state.hook_copy import hooks_undone
from workbench.experiment.state.hook_reach import known_of, reached

HEARD: list[int] = []


class TellingMeter(Meter):
    """Writes into a global too, which its class alone names."""

    def __call__(self, *_: Any) -> None:
        super().__call__()
        self.tell()

    def tell(self) -> None:
        HEARD.append(self.seen)


def experiment_of(tmp_path: Path) -> Experiment:
    return made(tmp_path / "runs", Net, lr=0.01)


def test_everything_that_a_hook_writes_is_undone(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    model, optimizer = experiment.model, experiment.optimizer
    calls, heard, table = 0, [1], {"a": [0]}
    queue, counts, seen = deque([1], maxlen=3), Counter({"x": 1}), {1}
    average, array = torch.zeros(3), np.arange(3.0)
    draws, bits = torch.Generator().manual_seed(1), random.Random(1)
    kept, meter = types.SimpleNamespace(last=None), TellingMeter()
    second = nn.Linear(2, 2)
    other = torch.optim.Adam(second.parameters())

    def hook(*_: Any) -> None:
        nonlocal calls
        calls += 1
        heard.append(calls)
        table["a"].append(calls)
        table[f"step {calls}"] = []
        queue.append(calls)
        counts["x"] += 1
        seen.add(calls + 10)
        average.add_(torch.rand(3, generator=draws))
        np.add(array, bits.random(), out=array)
        kept.last = torch.ones(2)
        second(torch.ones(1, 2)).sum().backward()
        other.step()

    model.head.register_forward_hook(hook)
    model.head.register_full_backward_hook(meter)
    optimizer.register_step_post_hook(hook)
    experiment.step().wait(60)

    def holds() -> list[Any]:
        return [
            calls, list(heard), {key: list(value) for key, value in table.items()}, list(queue),
            queue.maxlen, dict(counts), set(seen), average.tolist(), array.tolist(),
            draws.get_state().tolist(), bits.getstate(), kept.last, list(HEARD), meter.seen,
            meter.total, meter.rows.tolist(), [p.tolist() for p in second.parameters()],
            [{key: one.tolist() for key, one in state.items()} for state in other.state.values()],
        ]  # fmt: skip

    objects = (heard, table, table["a"], queue, counts, seen, kept.last, meter.rows)
    before = holds()
    assert calls == 2
    for _ in range(2):
        rehearse(experiment._training)
        assert holds() == before
    now = (heard, table, table["a"], queue, counts, seen, kept.last, meter.rows)
    assert all(one is other for one, other in zip(now, objects, strict=True))
    experiment.step().wait(60)
    assert (calls, meter.seen, average.count_nonzero()) == (4, 2, 3)


def test_what_the_first_step_would_make_is_no_more(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    meter, second = Meter(), nn.Linear(2, 2)
    other = torch.optim.Adam(second.parameters())

    def hook(*_: Any) -> None:
        nonlocal late
        late = 1
        second(torch.ones(1, 2)).sum().backward()
        other.step()

    experiment.model.head.register_forward_hook(hook)
    experiment.model.head.register_forward_hook(meter)
    late: Any
    rehearse(experiment._training)
    assert not other.state
    assert not hasattr(meter, "late")
    with pytest.raises(NameError):
        print(late)


def test_variables_of_the_users_modules_are_put_back(tmp_path: Path) -> None:
    path = tmp_path / "hooks_of_mine.py"
    path.write_text(
        "COUNT, HEARD = 0, []\n"
        "def hook(*_):\n"
        "    global COUNT, LATE\n"
        "    COUNT += 1\n"
        "    LATE = COUNT\n"
        "    HEARD.append(COUNT)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import hooks_of_mine  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(tmp_path))
    module: Any = hooks_of_mine
    experiment = experiment_of(tmp_path)
    experiment.model.head.register_forward_hook(module.hook)
    rehearse(experiment._training)
    assert (module.COUNT, module.HEARD, hasattr(module, "LATE")) == (0, [], False)
    experiment.step().wait(60)
    assert (module.COUNT, module.HEARD, module.LATE) == (1, [1], 1)


def test_objects_of_libraries_and_of_the_experiment_are_left_alone(tmp_path: Path) -> None:
    """A writer's queue is emptied by its thread meanwhile: what was put in has been written."""
    experiment = experiment_of(tmp_path)
    writer, steps = SummaryWriter(str(tmp_path / "mine")), []

    class Mine(SummaryWriter):
        """The user's, of a library's."""

    mine = Mine(str(tmp_path / "more"))

    def hook(*_: Any) -> None:
        steps.append(experiment.step_count)
        writer.add_scalar("a", len(steps), len(steps))
        mine.add_scalar("a", len(steps), len(steps))

    experiment.model.head.register_forward_hook(hook)
    training = experiment._training
    values = [
        value
        for _, value in reached(training, training.caller_settings, known_of(training), here=True)
    ]
    assert any(value is steps for value in values)
    assert not any(value is one for value in values for one in (writer, mine, experiment))
    assert len(values) < 10
    rehearse(training)
    assert steps == []
    experiment.step().wait(60)
    assert steps == [0]
    writer.close()
    mine.close()


def test_what_is_too_large_to_be_copied_is_named_if_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_of(tmp_path)
    small, average, table = torch.zeros(2), torch.zeros(100), torch.zeros(100)
    monkeypatch.setattr(hook_copy, "_MOST_BYTES", 100)

    def hook(*_: Any) -> None:
        small.add_(1)
        average.add_(table + 1)

    experiment.model.head.register_forward_hook(hook)
    rehearse(experiment._training)
    assert small.tolist() == [0.0, 0.0]
    said = [note for note in experiment.notes if "could not be copied" in note]
    assert len(said) == 1
    assert "average of the hook hook on head" in said[0]
    assert "table" not in said[0]


def test_a_hook_that_raises_leaves_no_trace_either(tmp_path: Path) -> None:
    experiment, heard = experiment_of(tmp_path), []

    def hook(*_: Any) -> None:
        heard.append(1)
        raise ValueError("no")

    experiment.model.head.register_forward_hook(hook)
    with pytest.raises(ValueError, match="no"), hooks_undone(experiment._training):
        experiment.model(torch.ones(2, 16))
    assert heard == []


def test_a_counter_in_a_module_that_is_trained_is_left_to_the_module(tmp_path: Path) -> None:
    """Modules of the model are put back by the guard; what is known is not followed."""
    experiment = experiment_of(tmp_path)
    head: Any = experiment.model.head
    head.calls = 0

    def hook(module: Any, *_: Any) -> None:
        module.calls += 1

    head.register_forward_hook(hook)
    for _ in itertools.repeat(None, 2):
        rehearse(experiment._training)
    assert head.calls == 0


EVERY, COUNTED = 10, 0


def test_a_name_that_a_hook_only_reads_stays_the_notebooks(tmp_path: Path) -> None:
    """A cell may give it another value while a step is looked at; what the hook binds is undone."""
    experiment, sparse = experiment_of(tmp_path), torch.eye(2).to_sparse()

    def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        global COUNTED  # noqa: PLW0603 - as a cell of a notebook does
        COUNTED += EVERY
        output.mean()
        assert sparse.shape == (2, 2)

    experiment.model.head.register_forward_hook(hook)
    namespace = globals()
    try:
        with hooks_undone(experiment._training):
            experiment.model(torch.ones(2, 16))
            assert namespace["COUNTED"] == 10
            namespace["EVERY"] = 2
            namespace["mean"] = 3.0
        assert (namespace["COUNTED"], namespace["EVERY"], namespace["mean"]) == (0, 2, 3.0)
    finally:
        namespace["EVERY"] = 10
        namespace.pop("mean", None)
