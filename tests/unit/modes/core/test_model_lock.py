"""Which models may be prepared, and by whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

import workbench as wb
from tests.unit.modes.own_loop.support import X, Y, net, sgd, step
from workbench.experiment import Experiment

Make = Callable[..., nn.Module]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Linear, TypeError, r"given the class Linear; give Linear\(\)"),
        (lambda: "net", TypeError, r"takes a torch\.nn\.Module, got str"),
        (nn.ReLU, ValueError, r"ReLU has no parameters and no buffers"),
        (lambda: nn.LazyLinear(2), ValueError, r"has lazy parameters; call it once on a batch"),
        (lambda: nn.Linear(2, 2, device="meta"), ValueError, r"tensors on the meta device"),
    ],
)
def test_a_model_that_modes_cannot_be_for_is_refused(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    modes = wb.Modes("bf16")
    with pytest.raises(error, match=message):
        modes.prepare(make())
    with pytest.raises(RuntimeError, match="needs a model"):
        modes.forward()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("fast", ValueError, r"unknown mode 'fast'; valid modes are"),
        ("compile:whole,fast", ValueError, r"unknown option 'fast'"),
        (None, TypeError, r"modes is a NoneType; give text such as 'compile\+bf16'"),
    ],
)
def test_a_text_that_says_nothing_valid_is_refused_at_once(
    text: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wb.Modes(text)
    modes = wb.Modes("bf16")
    with pytest.raises(error, match=message):
        modes.set(text)
    assert modes.text == "bf16"


def test_modes_that_machine_or_model_cannot_run_are_refused_with_why() -> None:
    modes, model = wb.Modes("checkpoint:body"), net()
    with pytest.raises(ValueError, match=r"Sequential has no module 'body' to checkpoint"):
        modes.prepare(model)
    modes.set("")
    modes.prepare(model)
    with pytest.raises(ValueError, match=r"attention cudnn does not exist on cpu"):
        modes.set("attention:cudnn")
    assert modes.text == "fp32"
    assert step(modes, model, sgd(model)) > 0


def test_a_switch_that_fails_half_way_leaves_the_modes_as_they_were(
    make_early_exit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, model = wb.Modes("checkpoint"), make_early_exit()
    modes.prepare(model)
    changed = [sorted(module.__dict__) for module in model.modules()]

    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("workbench.modes.compile.mode.use_persistent_cache", failing)
    with pytest.raises(MemoryError):
        modes.set("compile+checkpoint")
    assert modes.text == "checkpoint"
    assert [sorted(module.__dict__) for module in model.modules()] == changed
    modes.set("fp32")
    assert model.body[0].__dict__.get("forward") is None


def test_a_model_has_one_user_at_a_time(tmp_path: object) -> None:
    modes, model = wb.Modes("bf16"), net()
    modes.prepare(model)
    again = r"Sequential is prepared already, by wb\.Modes\('bf16'\): its set\(\.\.\.\) changes"
    for other in (modes, wb.Modes()):
        with pytest.raises(RuntimeError, match=again):
            other.prepare(model)
    with pytest.raises(RuntimeError, match=r"Sequential, a part of Sequential, is prepared"):
        wb.Modes().prepare(nn.Sequential(model, nn.Linear(4, 2)))
    with pytest.raises(RuntimeError, match=r"Linear is prepared already"):
        wb.Modes().prepare(model[0])
    with pytest.raises(ValueError, match=again):
        Experiment(model, (X, Y), runs=tmp_path, device="cpu")
    modes.remove()
    experiment = Experiment(model, (X, Y), runs=tmp_path, device="cpu", batch_size=4)
    experiment.run(steps=1, wait=True)
    with pytest.raises(RuntimeError, match=r"trained by an experiment, with modes 'fp32'; close"):
        modes.prepare(model)
    experiment.close()
    modes.prepare(model)
    assert step(modes, model, sgd(model)) > 0


def test_a_model_prepared_behind_an_experiments_back_fails_its_step_with_a_sentence(
    tmp_path: object,
) -> None:
    model, modes = net(), wb.Modes("bf16")
    experiment = Experiment(model, (X, Y), runs=tmp_path, device="cpu", batch_size=4)
    modes.prepare(model)
    with pytest.raises(Exception, match=r"is prepared already, by wb\.Modes\('bf16'\)"):
        experiment.run(steps=1, wait=True)
    assert experiment.step_count == 0
    modes.remove()
    experiment.resume().wait()
    assert experiment.step_count == 1
    experiment.close()


def test_modes_of_a_model_that_moved_are_refused() -> None:
    modes, model = wb.Modes("bf16"), net()
    modes.prepare(model)
    optimizer = sgd(model)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    model.to("meta")  # the one other device that every machine has
    moved = r"Sequential was prepared on cpu and is on meta now; call modes\.remove\(\), then"
    with pytest.raises(RuntimeError, match=moved), modes.update(loss, optimizer):
        pass


def on_two_devices() -> nn.Module:
    """As on a machine with a GPU: fake tensors say they lie on one, and have no values."""
    far = nn.Linear(2, 2, bias=False, device="meta")
    mode = FakeTensorMode()
    fake = FakeTensor(mode, torch.empty(2, 2, device="meta"), torch.device("cuda:0"))
    far.weight = nn.Parameter(fake)
    return nn.Sequential(nn.Linear(2, 2), far)


def test_modes_work_on_one_device() -> None:
    modes = wb.Modes("bf16")
    with pytest.raises(ValueError, match=r"Sequential is on cpu and cuda:0; modes work on one"):
        modes.prepare(on_two_devices())
    model = modes.prepare(net())
    with pytest.raises(ValueError, match=r"Linear is on cuda:0, and Sequential, which is prep"):
        modes.prepare(on_two_devices()[1])
    assert step(modes, model, sgd(model)) > 0
