"""Parallel: the experiment's steps are computed by several ranks at once.

``off`` trains in this process; ``ddp:2`` and ``fsdp:2,keep`` are layouts
(`workbench.modes.layout.layout`). Ranks run in separate processes, so nothing is done to the model
here: the code that runs the experiment sends it to them (`workbench.experiment.runtime.remote`),
and there the other modes are attached to it before it is distributed over the ranks.
"""

from __future__ import annotations

import os
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn

from workbench.modes.core.base import Mode
from workbench.modes.core.machine_probes import first_line, once
from workbench.modes.layout.layout import Layout
from workbench.records import ModeChoice

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_MIXED = "mixed torch.Tensor and DTensor"
"""How torch reports that a shard was used together with a whole tensor."""
_FEWEST = 2
"""Number of ranks that are offered even if a machine has room for fewer: on a CPU they share a
core."""


class Parallel(Mode):
    """Parallel training: off, or how the model is distributed over ranks."""

    name: ClassVar[str] = "parallel"
    label: ClassVar[str] = "Parallel"
    default: ClassVar[str] = "off"
    values: ClassVar[tuple[str, ...]] = ("off", "ddp:2", "fsdp:2")
    more_values: ClassVar[str] = (
        "ddp:N, or fsdp:N with any of hsdp=N, keep, bf16, fp16, offload after commas"
    )
    bare: ClassVar[bool] = True
    order: ClassVar[int] = 50

    def __init__(self, value: str, device: torch.device) -> None:
        self.layout = None if value == self.default else Layout.parse(value)
        """None: steps are computed in this process."""
        super().__init__(value if self.layout is None else str(self.layout), device)
        self.report = ""
        """What the ranks last reported about themselves, in words."""

    @classmethod
    def reads(cls, token: str) -> bool:
        """Whether it looks like a layout; `check` says what is wrong with one that is not valid."""
        return token.partition(":")[0].strip() in ("ddp", "fsdp")

    @classmethod
    def check(cls, value: str) -> None:
        """Refuse what is not a layout.

        Raises:
            ValueError: it is not valid; the message describes what is.
        """
        if value != cls.default:
            Layout.parse(value)

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """Off, and both kinds over as many ranks as the machine has room for."""
        ranks = max(_FEWEST, _room(device))
        offered = (f"ddp:{ranks}", f"fsdp:{ranks}")
        return ModeChoice(value="off"), *(_choice(value, ranks, device) for value in offered)

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:  # noqa: ARG002 - any model
        """`choices`, and the value itself."""
        found = self.choices(self.device)
        if any(choice.value == self.value for choice in found):
            return found
        return *found, ModeChoice(value=self.value)

    def refusal(self, model: nn.Module) -> str:
        """Why this machine has no room for it, or cannot train ``model`` under it."""
        layout = self.layout
        if layout is None:
            return ""
        room = max(_FEWEST, _room(self.device)) if self.device.type == "cpu" else _room(self.device)
        if problem := _missing(self.device):
            return f"parallel {layout} is not available here: {problem}"
        if layout.world_size > room:
            what = "CPU core" if self.device.type == "cpu" else "GPU"
            return (
                f"parallel {layout} needs {layout.world_size} {what}s, one for each rank; this "
                f"machine has room for {room}: give {layout.kind}:N with N up to {room}"
            )
        if layout.offload and self.device.type == "cpu":
            return (
                f"parallel {layout} keeps shards in host memory, where they are already on "
                "device cpu; leave offload out"
            )
        refused = ""
        if self.device.type == "cpu" and layout.world_size > 1:
            refused = _refused_on_cpu(model, layout)
        return refused or _refused_buffer(model, layout)

    def explain(self, error: BaseException) -> str:
        """Explain an error about shards: parameters were used outside of their block's forward."""
        if self.layout is None or self.layout.kind != "fsdp" or _MIXED not in str(error):
            return ""
        return (
            f"under {self.layout} a step used parameters of a block outside of the block's forward "
            "(a method of it that is called directly, say), which the first step did not: call the "
            f"block itself, or use ddp:{self.layout.world_size} ({first_line(error)})"
        )

    def so_far(self) -> str:
        """What the ranks last reported about themselves."""
        return self.report


def _refused_buffer(model: nn.Module, layout: Layout) -> str:
    """Refuse a buffer whose values are not stored side by side: ranks exchange bytes of memory."""
    for name, buffer in model.named_buffers():
        kind, instead = _kind_of_memory(buffer), "a dense one, or make it in forward"
        if kind == "expanded":
            instead = "a clone() of it, which has memory for each of its elements"
        if kind:
            return (
                f"parallel {layout} cannot train {type(model).__name__}: its buffer {name} is "
                f"{kind}, and ranks exchange buffers as plain memory. Register {instead}"
            )
    return ""


def _kind_of_memory(tensor: torch.Tensor) -> str:
    """What is unusual about its memory, or ``""``."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"of layout {str(tensor.layout).removeprefix('torch.').lstrip('_')}"
    shared = any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return "expanded" if shared else ""


def _refused_on_cpu(model: nn.Module, layout: Layout) -> str:
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm) and module.training:
            return (
                f"parallel {layout} cannot train {name or 'the model'} on the CPU: torch has a "
                "SyncBatchNorm that counts over ranks for GPUs alone. Use nn.BatchNorm1d, 2d or 3d "
                "there, which counts each rank's own samples, or keep it in eval mode"
            )
    return ""


def _room(device: torch.device) -> int:
    """Number of ranks that this machine can run without two of them sharing a device."""
    if device.type == "cpu":
        affinity = hasattr(os, "sched_getaffinity")
        return (len(os.sched_getaffinity(0)) if affinity else os.cpu_count()) or 1
    return torch.cuda.device_count() if device.type == "cuda" else 0


@once
def _missing(device: torch.device) -> str:
    """What this installation lacks for any rank at all, or ``""``."""
    if not dist.is_available():
        return "this build of torch has no torch.distributed; install one that has"
    backend = _BACKENDS.get(device.type)
    if backend is None:
        return f"ranks on {device.type} are not supported; valid devices are cpu and cuda"
    if not dist.is_backend_available(backend):
        return f"this build of torch has no {backend}, which ranks on {device.type} need"
    return ""


@once
def _choice(value: str, ranks: int, device: torch.device) -> ModeChoice:
    if problem := _missing(device):
        why, _, remedy = problem.partition("; ")
        return ModeChoice(value=value, available=False, why=f"{_sentence(why)}.", remedy=remedy)
    room = _room(device)
    if device.type == "cuda" and ranks > room:
        return ModeChoice(
            value=value,
            available=False,
            why=f"This machine has {room} GPU, and every rank needs one of its own.",
            remedy=f"Try the mechanics on one GPU, or train on the CPU: {value} takes two cores.",
            commands=(f'exp.modes = "{value.partition(":")[0]}:1"', 'device="cpu"'),
        )
    return ModeChoice(value=value)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
