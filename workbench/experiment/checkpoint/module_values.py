"""What modules keep in plain attributes, and a training has changed: a counter, a moving average.

A ``state_dict`` has parameters and buffers alone. What a notebook creates anew in another process
has the values that its code gives it, so a checkpoint holds those attributes that have changed
since the first step, and no others: a layer that is created with another setting keeps the setting.
Known are numbers, texts, small tensors and arrays, and containers of them
(`workbench.experiment.state.value_snapshots`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from workbench.experiment.state.module_state import NOT_ITS_OWN
from workbench.experiment.state.value_snapshots import Budget, encoded
from workbench.trust import error_message

_ABSENT = b"\0absent"
_MOST = 4_096
"""Maximum length of a container that is searched for tensors."""


class ModuleValues:
    """Attributes of the modules of models, compared with those of the moment it is made.

    Args:
        models: name -> model or loss.
        changed: paths of attributes that had changed before, in another process.
    """

    def __init__(self, models: dict[str, nn.Module], changed: set[str] | None = None) -> None:
        self._models = models
        self._changed = changed or set()
        self._before = {path: content for path, _, _, content, _ in self._all()}
        self._unknown: list[str] = []

    def changed(self) -> dict[str, Any]:
        """Return the path of every attribute that has changed, and its value on its device."""
        found: dict[str, Any] = {}
        self._unknown = []
        for path, module, name, content, is_known in self._all():
            if content != self._before.get(path, _ABSENT):
                self._changed.add(path)
            if path not in self._changed:
                continue
            if is_known:
                value = vars(module)[name]
                found[path] = value, _device_of(value)
            else:
                self._unknown.append(path)
        return found

    def notes(self) -> list[str]:
        """Say which attributes have changed and are not in the checkpoint."""
        return [
            f"{path.removeprefix('model.')} changes while the model trains and is not in "
            "checkpoints: it is too large, or holds more than numbers, texts and small tensors. A "
            "run that is resumed has it as the model was created; a buffer, or get_extra_state, "
            "would be in them"
            for path in self._unknown
        ]

    def take(self, values: dict[str, Any]) -> list[str]:
        """Write the values of a checkpoint; return a sentence for each that no module takes."""
        modules = {
            f"{which}.{path}": module
            for which, model in self._models.items()
            for path, module in model.named_modules()
        }
        lost: list[str] = []
        for path, (value, device) in values.items():
            where, _, name = path.rpartition(".")
            module = modules.get(where if "." in where else f"{where}.")
            if module is None:
                lost.append(f"{path} of the checkpoint is left out: there is no such module")
                continue
            try:
                setattr(module, name, _moved(value, device))
                self._changed.add(path)
            except Exception as error:  # noqa: BLE001 - __setattr__ of the user's own, or no such GPU
                lost.append(f"{path} could not be set: {error_message(error)}")
        return lost

    def _all(self) -> Iterator[tuple[str, nn.Module, str, bytes, bool]]:
        budget = Budget()
        for which, model in self._models.items():
            owned = {id(one) for one in (*model.parameters(), *model.buffers())}
            for at, module in model.named_modules():
                prefix = f"{which}.{at}." if at else f"{which}."
                for name, value in list(vars(module).items()):
                    if name in NOT_ITS_OWN or isinstance(value, nn.Module) or callable(value):
                        continue
                    if any(id(one) in owned or one.requires_grad for one in _tensors_in(value)):
                        continue  # another way to tensors that are saved as such
                    found = encoded(value, budget)
                    yield f"{prefix}{name}", module, name, found.content, found.is_known


def _tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple, set, dict, deque)) and len(value) <= _MOST:
        inner = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else value
        for one in cast("Any", inner):
            yield from _tensors_in(one, depth - 1)


def _device_of(value: Any) -> str:
    devices = {str(one.device) for one in _tensors_in(value)}
    return devices.pop() if len(devices) == 1 else ""


def _moved(value: Any, device: str) -> Any:
    """Return ``value`` with its tensors where they were; a checkpoint has them on the CPU."""
    if not device or device == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return type(value)({key: _moved(one, device) for key, one in items})
    if isinstance(value, (list, tuple, set)):
        return type(value)(_moved(one, device) for one in cast("list[Any]", value))
    if isinstance(value, deque):
        moved = [_moved(one, device) for one in cast("deque[Any]", value)]
        return deque(moved, maxlen=cast("deque[Any]", value).maxlen)
    return value
