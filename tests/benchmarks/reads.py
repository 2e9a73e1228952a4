"""Counts every read of a tensor's value on the thread that enters it, by who asked."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import workbench

_PACKAGE = str(Path(workbench.__file__).parent)
_WHOLE_READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.__array__}
_SCALAR_READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}


class ReadCounter:
    """``with ReadCounter() as reads: ...``; ``reads.counts`` maps a file of Workbench to reads.

    ``item``, ``float``, ``bool``, ``if tensor`` and the like all dispatch one operator; ``tolist``,
    ``numpy`` and ``cpu`` are caught as the calls they are. A read outside Workbench (torch's
    optimizers read their own step counts) is counted under the file that called torch.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._modes = (_Scalars(self.counts), _Wholes(self.counts))

    def __enter__(self) -> ReadCounter:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Scalars(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SCALAR_READS:
            self.counts[_caller()] += 1
        return func(*args, **(kwargs or {}))


class _Wholes(TorchFunctionMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WHOLE_READS:
            self.counts[_caller()] += 1
        return func(*args, **(kwargs or {}))


def _caller() -> str:
    """The nearest file of Workbench up the stack, as ``experiment/loop/step_guard.py``."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return frame.f_code.co_filename[len(_PACKAGE) + 1 :]
        frame = frame.f_back
    return "elsewhere"
