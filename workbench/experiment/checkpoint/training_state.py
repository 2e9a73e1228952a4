"""The state of a training: its tensors by name, and the rest in plain data.

A checkpoint on disk (`workbench.experiment.checkpoint.folder`) and one that is sent to ranks
(`workbench.parallel.transfer.checkpoint`) both consist of it. Tensors are those of the model, of a
loss that has some, and of the optimizer; moments are named by their parameter:
``optimizer.encoder.weight.exp_avg``. Torch's own ``get_optimizer_state_dict`` steps an optimizer
that has no state to create some, and expects it for every parameter; here a parameter that no step
has reached yet has none, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from workbench.experiment.recipe.optimizers import optimizers_in

if TYPE_CHECKING:
    from workbench.experiment.recipe.schedules import Schedule
    from workbench.experiment.training import Training

Moments = dict[tuple[str, Any], Any]
"""(name of a parameter, key of what the optimizer keeps for it) -> value"""


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter and buffer once, including buffers that are in no ``state_dict``."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def names_in_state_dict(model: nn.Module) -> dict[str, str]:
    """Name in a ``state_dict`` -> name of the tensor in a checkpoint, which has tied ones once."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        left_out: set[str] = vars(module).get("_non_persistent_buffers_set", set())
        own = [
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ]
        for name, tensor in own:
            full = f"{path}.{name}".lstrip(".")
            canonical = first.setdefault(id(tensor), full)
            if name not in left_out:
                found[full] = canonical
    return found


def tensors(training: Training) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return every dense tensor of a training by its full name, and what cannot be among them.

    They are the training's own, not copies.
    """
    found, moments = _optimizer_state(training)
    apart: dict[str, torch.Tensor] = {}
    for name, tensor in all_tensors(training):
        (found if tensor.layout is torch.strided else apart)[name] = tensor
    if training.ema is not None:
        found |= training.ema.tensors()
    return found, {"moments": moments, "apart": apart, "wrapped": _wrapped_state(training)}


def all_tensors(training: Training) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of model and loss, and parameters that the optimizer alone holds."""
    for name, tensor in tensors_of(training.model):
        yield f"model.{name}", tensor
    if training.loss.module is not None:
        for name, tensor in tensors_of(training.loss.module):
            yield f"loss.{name}", tensor
    known = {id(parameter) for parameter in training.model.parameters()}
    known |= {id(parameter) for parameter in training.loss.parameters()}
    for parameter, name in _names(training).items():
        if id(parameter) not in known and parameter not in training.stand_ins:
            yield f"parameter.{name}", parameter


def _names(training: Training) -> dict[torch.Tensor, str]:
    """Return the name of every trained parameter; those of a loss or of no module are numbered."""
    names: dict[torch.Tensor, str] = {
        parameter: name for name, parameter in training.model.named_parameters()
    }
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    for at, parameter in enumerate(p for group in groups for p in group["params"]):
        names.setdefault(parameter, training.stand_ins.get(parameter, f"#{at}"))
    return names


def _optimizer_state(training: Training) -> tuple[dict[str, Any], Moments]:
    """Return moments that are dense tensors, by full name, and what else the optimizer keeps."""
    names = _names(training)
    found: dict[str, Any] = {}
    plain: Moments = {}
    for parameter, state in cast("dict[Any, Any]", training.optimizer.state).items():
        name = names.get(parameter) if isinstance(parameter, torch.Tensor) else None
        if name is None:
            plain["", parameter] = state  # of no parameter
            continue
        for key, value in state.items():
            is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
            if is_dense and isinstance(key, str):
                found[f"optimizer.{name}.{key}"] = value
            else:
                plain[name, key] = value
    return found, plain


def _wrapped_state(training: Training) -> list[Any]:
    """What an optimizer keeps elsewhere: one around another (Lookahead), or with its own states."""
    optimizer = training.optimizer
    inner = [one for one in optimizers_in(optimizer) if one is not optimizer]
    is_own = type(optimizer).state_dict is not torch.optim.Optimizer.state_dict
    return [one.state_dict() for one in (*inner, *([optimizer] if is_own else []))]


def take_wrapped_state(training: Training, saved: list[Any]) -> bool:
    """Load what `tensors` has of such an optimizer; False if it is of another kind."""
    optimizer = training.optimizer
    inner = [one for one in optimizers_in(optimizer) if one is not optimizer]
    is_own = type(optimizer).state_dict is not torch.optim.Optimizer.state_dict
    every = [*inner, *([optimizer] if is_own else [])]
    if len(every) != len(saved):
        return False
    for one, state in zip(every, saved, strict=True):
        one.load_state_dict(state)
    return True


def empty_moments(
    training: Training, saved: dict[str, Any], on_cpu: set[str]
) -> dict[tuple[str, str], torch.Tensor]:
    """Return a tensor for every moment in a checkpoint, sharded like its parameter if as large.

    Moments of a parameter on a GPU are there or in host memory. The ``step`` of a fused or a
    capturable optimizer must be on the GPU, though it was saved in host memory where shards were
    offloaded.

    Args:
        training: the training that is to have them.
        saved: name -> entry of the checkpoint's table of tensors.
        on_cpu: full names of those that were in host memory.
    """
    by_name = {name: parameter for parameter, name in _names(training).items()}
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    beside = {
        id(parameter)
        for group in groups
        if group.get("fused") or group.get("capturable")
        for parameter in group["params"]
    }
    found: dict[tuple[str, str], torch.Tensor] = {}
    for full, entry in saved.items():
        if not full.startswith("optimizer."):
            continue
        name, _, key = full.removeprefix("optimizer.").rpartition(".")
        parameter, dtype = by_name[name], entry.dtype
        if tuple(entry.size) == tuple(parameter.shape):
            found[name, key] = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        else:
            is_beside = key == "step" and id(parameter) in beside
            on_host = full in on_cpu and not is_beside
            device = torch.device("cpu") if on_host else parameter.device
            found[name, key] = torch.empty(entry.size, dtype=dtype, device=device)
    return found


def empty_averages(training: Training, saved: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return a tensor for every average of a weight in a checkpoint, by the parameter's name."""
    found: dict[str, torch.Tensor] = {}
    if training.ema is None:
        return found
    for name, parameter in training.model.named_parameters():
        entry = saved.get(f"ema.{name}")
        if entry is not None and tuple(entry.size) == tuple(parameter.shape):
            found[name] = torch.empty_like(parameter, dtype=entry.dtype, requires_grad=False)
    return found


def take_moments(
    training: Training, dense: dict[tuple[str, str], torch.Tensor], plain: Moments
) -> None:
    """Give the optimizer these moments in the place of its own."""
    by_name = {name: parameter for parameter, name in _names(training).items()}
    state = cast("dict[Any, Any]", training.optimizer.state)
    state.clear()
    for (name, key), value in {**dense, **plain}.items():
        if not name:
            state[key] = value
            continue
        is_dense = isinstance(value, torch.Tensor) and not value.is_sparse
        kept = value if is_dense else _moved(value, by_name[name].device)
        state.setdefault(by_name[name], {})[key] = kept


def _moved(value: Any, device: torch.device) -> Any:
    """Move the tensors in a value to the device of their parameter."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _moved(item, device) for key, item in items}
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device) for item in value)
    return value


def other_buffers(
    training: Training, saved: dict[str, Any], names: list[str]
) -> dict[str, torch.Tensor]:
    """Return a tensor for each buffer that cannot be written.

    A forward made it, or gave it another shape or type; or it is expanded, several entries of one
    number.
    """
    found: dict[str, torch.Tensor] = {}
    modules = dict(training.model.named_modules())
    for full in names:
        entry = saved[f"model.{full}"]
        path, _, name = full.rpartition(".")
        module = modules.get(path)
        if module is None:
            continue
        buffers: dict[str, torch.Tensor | None] = vars(module)["_buffers"]
        now, dtype = buffers.get(name), entry.dtype
        other = now is None or tuple(now.shape) != tuple(entry.size) or now.dtype is not dtype
        if other or _overlaps(now):
            device = training.device if now is None else now.device
            found[full] = torch.empty(entry.size, dtype=dtype, device=device)
    return found


def _overlaps(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.layout is not torch.strided:
        return False
    return any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


@torch.no_grad()
def take_tensors(
    training: Training, read: dict[str, torch.Tensor], other: dict[str, torch.Tensor]
) -> None:
    """Write the model's tensors, and give it the ``other_buffers`` that it did not have so."""
    modules = dict(training.model.named_modules())
    for full, buffer in other.items():
        path, _, name = full.rpartition(".")
        vars(modules[path])["_buffers"][name] = buffer
    for name, tensor in tensors_of(training.model):
        if name in read and name not in other:
            tensor.detach().copy_(read[name])


def rest(training: Training) -> dict[str, Any]:
    """Return everything that a resume needs in addition to `tensors`."""
    scheduler: Any = training.schedule.scheduler
    cursor = training.cursor
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    if not training.is_at_rest:  # else cells may have drawn since
        training.random.save()
    random = cursor.random_before_batch or training.random.state_dict()
    trained = {name: one.requires_grad for name, one in training.model.named_parameters()}
    return {
        "groups": [{key: group[key] for key in group if key != "params"} for group in groups],
        "has_scheduler": scheduler is not None,
        "scheduler": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None,
        "modes": training.modeset.state_dict(),
        "step": training.step_count,
        "position": cursor.position(),
        "random": random,
        "train_mode": training.train_mode.state(),
        "trained": trained,
        "trained_at_start": training.trained_at_start or trained,
        "buffers": [name for name, _ in training.model.named_buffers()],
        "steps_in_epoch": training.steps_in_epoch,
        "answers": training.measures.accuracy.state(),
        "monitor": training.monitor.state(),
        "best_accuracy": training.best_accuracy,
        "ema": 0 if training.ema is None else training.ema.num_updates,
    }


def take_rest(training: Training, saved: dict[str, Any]) -> None:
    """Continue from a `rest`, in all but which parameters are trained and the train modes.

    The random states are those of the next series of steps; they are not the process's before it.
    """
    for group, settings in zip(training.optimizer.param_groups, saved["groups"], strict=True):
        group.update(settings)
    _take_schedule(training.schedule, saved)
    training.modeset.load_state_dict(saved["modes"])
    training.step_count, training.steps_in_epoch = saved["step"], saved["steps_in_epoch"]
    training.cursor.go_to(saved["position"])
    training.random.load_state_dict(saved["random"])
    training.measures.accuracy.load_state(saved["answers"])
    training.monitor.load_state(saved["monitor"])
    training.best_accuracy = saved["best_accuracy"]


def _take_schedule(schedule: Schedule, saved: dict[str, Any]) -> None:
    """Load a schedule's state; one that was removed, there or here meanwhile, stays removed."""
    if schedule.is_removed or (schedule.scheduler is not None and not saved["has_scheduler"]):
        schedule.end()
    elif saved["scheduler"] is not None:
        scheduler: Any = schedule.scheduler
        scheduler.load_state_dict(saved["scheduler"])
