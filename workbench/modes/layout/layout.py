"""Parallel layouts: how a model is distributed over ranks, as text and as applied to the model.

``ddp:2`` keeps a whole model on every rank and averages gradients (`DistributedDataParallel`);
``fsdp:2`` shards parameters, gradients and moments (`fully_shard`, FSDP2), block by block, so that
only the block that computes is whole. Options follow after commas: ``fsdp:4,hsdp=2`` shards over
two ranks and replicates over two, ``keep`` keeps a block whole after its forward (faster, more
memory), ``bf16`` and ``fp16`` compute and gather in 16 bits, ``offload`` keeps shards in host
memory.

Ranks run in separate processes (`workbench.parallel`); nothing here starts one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import nn

from workbench.modes.core.model_blocks import find_blocks
from workbench.torch_private.distributed import ignore_in_ddp

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_SENT = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
}
"""Types that gloo and NCCL send between ranks, as of torch 2.13."""
_OPTIONS = {
    "ddp": (),
    "fsdp": ("keep", "bf16", "fp16", "offload", "hsdp=N"),
}


@dataclass(frozen=True)
class Layout:
    """``ddp`` or ``fsdp`` over a number of ranks."""

    kind: Literal["ddp", "fsdp"]
    world_size: int
    replicas: int = 1
    """For ``fsdp``: number of groups of ranks that each hold a whole model between them (HSDP)."""
    keep: bool = False
    """For ``fsdp``: parameters stay gathered between a block's forward and its backward."""
    dtype: Literal["", "bf16", "fp16"] = ""
    """For ``fsdp``: the type that parameters are gathered and computed in; gradients are reduced
    in float32."""
    offload: bool = False
    """For ``fsdp``: shards are stored in host memory between uses; this needs an accelerator."""

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse ``ddp:2`` or ``fsdp:4,hsdp=2,keep,bf16``.

        Raises:
            ValueError: it is not a layout; the message says what is valid.
        """
        head, *options = [part.strip().lower() for part in text.split(",")]
        kind, _, count = head.partition(":")
        if kind not in _OPTIONS or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise ValueError(
                f"{text!r} is no parallel layout; valid: ddp:N or fsdp:N with N ranks from 1, and "
                f"after commas, of fsdp: {', '.join(_OPTIONS['fsdp'])}"
            )
        found: dict[str, Any] = {}
        for option in options:
            name, value = _option(kind, option, text)
            if name in found:
                raise ValueError(f"{text!r} gives {name} twice; name every option once")
            found[name] = value
        layout = cls(cast("Literal['ddp', 'fsdp']", kind), int(count), **found)
        if layout.world_size % layout.replicas:
            raise ValueError(
                f"{text!r} divides {layout.world_size} ranks into {layout.replicas} replicas; "
                "their number must divide the number of ranks"
            )
        return layout

    def __str__(self) -> str:
        options = [
            f",hsdp={self.replicas}" if self.replicas > 1 else "",
            ",keep" if self.keep else "",
            f",{self.dtype}" if self.dtype else "",
            ",offload" if self.offload else "",
        ]
        return f"{self.kind}:{self.world_size}{''.join(options)}"


def lay_out(
    model: nn.Module,
    layout: Layout,
    device: torch.device,
    *,
    read: Callable[[Any], torch.Tensor],
    by_blocks: bool = True,
    whole: Collection[nn.Parameter] = (),
    average: bool = False,
) -> nn.Module:
    """Distribute ``model`` over the ranks of the process group; return what is called for a step.

    Called on every rank, with equal weights, after all other modes were attached. ``fsdp`` changes
    ``model`` in place and makes its parameters `DTensor`; ``ddp`` wraps it. Parameters that a step
    does not reach are not an error: a model may branch as it likes.

    Gradients are summed over the ranks, and not averaged: losses of ranks are parts of one, if each
    has its part of a batch. If they are scaled for fp16, a rank rounds the sum over its own rows
    (`workbench.parallel.rank.fp16_gradients`).

    Args:
        model: the model, on ``device``.
        layout: the layout of all ranks.
        device: the device of this rank.
        read: returns the logits of whatever the model returns. The wrapper of ``ddp`` returns only
            these, because it waits for the gradients of everything that it has returned.
        by_blocks: for ``fsdp``, whether to gather block by block. All ranks must then take the same
            blocks in every step; otherwise all parameters are gathered at once.
        whole: for ``fsdp``, parameters that stay whole on every rank, as numbers do in any case.
            They stay the same objects, and the caller that trains sums their gradients.
        average: for ``ddp``, whether gradients are averaged after all: every rank has the whole
            batch.
    """
    if layout.kind == "ddp":
        ids = None if device.type == "cpu" else [device]
        answers = _Answers(model, read)
        _leave_to_each_rank(answers)
        wrapped = nn.parallel.DistributedDataParallel(
            answers, device_ids=ids, find_unused_parameters=True
        )
        wrapped.register_comm_hook(None, _averaged if average else _added_up)
        return cast("nn.Module", wrapped)
    _shard(model, layout, device, by_blocks=by_blocks, whole=whole)
    return model


class _Answers(nn.Module):
    """A model that returns only its logits."""

    def __init__(self, model: nn.Module, read: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.model, self._read = model, read

    def forward(self, *inputs: Any, **named: Any) -> torch.Tensor:
        return self._read(self.model(*inputs, **named))


def _added_up(_state: None, bucket: Any) -> Any:
    """A gradient bucket of DDP, summed over the ranks."""
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(_first_value)


def _averaged(_state: None, bucket: Any) -> Any:
    """The same, averaged."""
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(_share_of_value)


for _hook in (_added_up, _averaged):
    _hook.__annotations__.clear()  # DDP takes none that are strings


def _first_value(done: Any) -> Any:
    return done.value()[0]


def _share_of_value(done: Any) -> Any:
    return done.value()[0].div_(dist.get_world_size())


def _leave_to_each_rank(model: nn.Module) -> None:
    """Have DDP send no buffer whose dtype it cannot send (``int16``): each rank keeps its own."""
    named = [name for name, buffer in model.named_buffers() if buffer.dtype not in _SENT]
    ignore_in_ddp(model, named)


def reshard(model: nn.Module) -> None:
    """Free what `fsdp` has gathered, so that the model's parameters are its shards again.

    After a forward without a backward (validation) those of the root stay gathered.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _shard(
    model: nn.Module,
    layout: Layout,
    device: torch.device,
    *,
    by_blocks: bool,
    whole: Collection[nn.Parameter],
) -> None:
    from torch.distributed.fsdp import fully_shard

    settings = _fsdp_settings(layout, device)
    # `fully_shard` refuses numbers: ranks keep them whole, and sum their gradients themselves
    settings["ignored_params"] = {*whole, *(one for one in model.parameters() if one.ndim == 0)}
    if by_blocks:
        for block in find_blocks(model):
            _add_up(fully_shard(block, **settings))
    else:
        settings["reshard_after_forward"] = False
    _add_up(fully_shard(model, **settings))


def _add_up(sharded: Any) -> None:
    """Have its gradients summed over the ranks, by a plain sum, which gloo has too."""
    sharded.set_force_sum_reduction_for_comms(True)
    sharded.set_gradient_divide_factor(1.0)


def _fsdp_settings(layout: Layout, device: torch.device) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    # the mesh is named explicitly: on a machine with a GPU, gloo would be given a CUDA mesh
    whole = dist.get_world_size()
    shape, names = (whole,), ("shard",)
    if layout.replicas > 1:
        shape = (layout.replicas, whole // layout.replicas)
        names = ("replicate", "shard")
    settings: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, shape, mesh_dim_names=names),
        "reshard_after_forward": not layout.keep,
    }
    if layout.dtype:
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=_DTYPES[layout.dtype], reduce_dtype=torch.float32
        )
    if layout.offload:
        settings["offload_policy"] = CPUOffloadPolicy()
    return settings


def _option(kind: str, option: str, text: str) -> tuple[str, Any]:
    """An option as (field, value)."""
    name, equals, count = option.partition("=")
    if kind == "fsdp":
        if option in ("keep", "offload"):
            return option, True
        if option in _DTYPES:
            return "dtype", option
        if name == "hsdp" and equals and count.isascii() and count.isdigit() and int(count) > 0:
            return "replicas", int(count)
    valid = ", ".join(_OPTIONS[kind]) or "none"
    raise ValueError(f"unknown option {option!r} in {text!r}; {kind} has: {valid}")
