"""Check whether an optimizer may step on shards, by letting a copy of it do so.

Under `fsdp` a rank has some rows of each parameter. Adam's update of an element depends only on
that element, so ranks that each step on their own rows together do what one process does. LARS
divides by the norm of a parameter, Adafactor keeps sums over rows and columns, Muon orthogonalizes
a matrix, and clipping inside ``step`` reads all gradients: each rank would use its own rows only,
and no error would be raised (pytorch#144054). What an optimizer does cannot be derived from its
name, so a copy steps on small parameters of its own, once whole and once in parts. Where the parts
differ, or the copy cannot step on them, ranks gather what the optimizer sees
(`workbench.parallel.rank.whole_optimizer`).
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict, defaultdict
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from workbench.experiment.state.attachments import own_attributes
from workbench.experiment.state.object_copy import ObjectCopy, walk
from workbench.modes.core.machine_probes import first_line
from workbench.parallel.sentences import first_nonempty

_LONGEST = 512
"""Maximum number of rows and of columns of a trial parameter: above the sizes at which optimizers
begin to treat a matrix as one."""
_GRADIENTS = (1e-3, 1e-3, 1.0, 1.0, 1e2, 1e2)
"""Sizes of the gradients, step by step: some of them trigger clipping or scaling."""
_FASTEST, _SLOWEST = 1.0, 1e-2
"""Bounds of the learning rate in a trial: one of 0, in the first step of a warm-up, shows
nothing."""
_ROUNDED = (torch.float16, torch.bfloat16)
"""Steps on these are tried in float32: rounding would hide the differences."""
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_OTHERS = "the update of an element depends on others, as by a norm"


class _Kind(NamedTuple):
    """Parameters that an optimizer cannot distinguish from each other by their shape."""

    group: int
    shape: tuple[int, ...]
    dtype: torch.dtype


def needs_whole(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> str:
    """Return why ``optimizer`` must see whole parameters in its step, or ``""``.

    Every rank must call it. The optimizer, its parameters and the random state are left unchanged.

    Args:
        optimizer: the optimizer that will step on shards.
        parameters: the parameters that will be sharded, and are still whole.
    """
    why = "it keeps parameters beside its groups" if _keeps_any_of(optimizer, parameters) else ""
    return (
        first_nonempty(_why_whole(optimizer, parameters, dist.get_world_size()))
        or first_nonempty(why)
        or first_nonempty(_why_not_sharded(optimizer, parameters))
    )


def steps_by_element(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], num_shards: int
) -> bool:
    """Return whether ``optimizer`` updates ``num_shards`` parts of ``parameters`` like the whole.

    For one process; `needs_whole` checks it over all ranks.
    """
    return not _why_whole(optimizer, parameters, num_shards)


def draws_numbers(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step draws random numbers (to add noise, say); every rank must call it."""
    return bool(first_nonempty("draws" if draws(optimizer) else ""))


def draws(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step of ``optimizer`` draws random numbers; on a copy, for one process."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    kinds = _kinds(optimizer, [p for group in groups for p in group["params"]])
    found = False
    if kinds:
        with contextlib.suppress(Exception), _untouched(optimizer):
            trial = _Trial(optimizer, kinds, 1, None)
            before = _random_states(next(iter(kinds.values()))[0].device)
            trial.step(1.0)
            after = _random_states(next(iter(kinds.values()))[0].device)
            found = not all(map(torch.equal, before, after))
    return found


def _why_whole(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], num_shards: int
) -> str:
    if any(_of_the_user(hook) for name in _HOOKS for hook in getattr(optimizer, name, {}).values()):
        return "it has hooks, which may look at any parameter"
    if any(hasattr(value, "param_groups") for value in vars(optimizer).values()):
        return "it wraps another optimizer"
    kinds = _kinds(optimizer, parameters)
    if not kinds:
        return ""  # it trains none of the sharded parameters
    try:
        with _untouched(optimizer):
            whole = _Trial(optimizer, kinds, num_shards, None)
            ranks = {0, 1, num_shards - 1}
            parts = [_Trial(optimizer, kinds, num_shards, rank) for rank in sorted(ranks)]
            return _compare(whole, [part for part in parts if part.is_at_work])
    except Exception as error:  # noqa: BLE001 - an optimizer of the user's may raise anything
        return f"a copy of it could not step on shards ({first_line(error)})"


def _keeps_any_of(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> bool:
    """Whether an attribute holds one: a list of its own would keep what is not sharded."""
    theirs = set(map(id, parameters))
    groups: list[dict[str, Any]] = optimizer.param_groups
    beside = (optimizer.state, groups, *groups, *(group["params"] for group in groups))
    found = walk({"": own_attributes(optimizer)}, beside, modules=True)
    return any(id(one) in theirs for _, one in found)


def _why_not_sharded(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> str:
    """Return why it cannot step on sharded tensors: torch has no rule for some operations."""
    kinds = _kinds(optimizer, parameters)
    if not kinds:
        return ""
    ranks = dist.get_world_size()
    try:
        with _untouched(optimizer):
            whole = _Trial(optimizer, kinds, ranks, None)
            lying = _Trial(optimizer, kinds, ranks, dist.get_rank(), over_ranks=True)
            return _compare(whole, [lying])
    except Exception as error:  # noqa: BLE001 - as above
        return f"it cannot step on tensors that are sharded over ranks ({first_line(error)})"


def _compare(whole: _Trial, parts: Sequence[_Trial]) -> str:
    for size in _GRADIENTS:
        whole.step(size)
        if whole.has_other_shapes():
            return "its state has other shapes than the parameters"
        for part in parts:
            part.step(size)
            if not part.agrees_with(whole):
                return _OTHERS
    return "" if whole.has_moved() else "its steps on a trial move too little to be compared"


class _Trial:
    """A copy of an optimizer with parameters of its own, one of each kind.

    Args:
        optimizer: the optimizer that is copied.
        kinds: the kinds of parameters that it has.
        num_shards: number of parts.
        rank: the rank whose part the parameters are; None: they are whole.
        over_ranks: whether a part is given as a tensor that is sharded over ranks.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        kinds: dict[_Kind, list[torch.Tensor]],
        num_shards: int,
        rank: int | None,
        *,
        over_ranks: bool = False,
    ) -> None:
        self._num_shards, self._rank, self._over_ranks = num_shards, rank, over_ranks
        self._kinds = kinds
        self._begun = [self._values(kind, seed) for seed, kind in enumerate(kinds)]
        self._parameters = [nn.Parameter(self._part(whole)) for whole in self._begun]
        self._optimizer = _copy(optimizer, kinds, self._parameters)
        self._steps = 0

    @property
    def is_at_work(self) -> bool:
        """Whether it has any row of any parameter."""
        return any(parameter.numel() for parameter in self._parameters)

    def step(self, size: float) -> None:
        """Step with gradients of this ``size``, which differ strongly from part to part."""
        self._steps += 1
        for seed, (kind, parameter) in enumerate(zip(self._kinds, self._parameters, strict=True)):
            gradient = self._values(kind, 1000 * self._steps + seed, more=8.0) * size
            parameter.grad = self._part(gradient)
        self._optimizer.step()

    def agrees_with(self, whole: _Trial) -> bool:
        """Return whether its parameters are parts of those of ``whole``, except for rounding."""
        for mine, theirs, begun in zip(
            self._parameters, whole._parameters, self._begun, strict=True
        ):
            own = mine.detach()
            own = own.to_local() if isinstance(own, DTensor) else own
            expected = self._rows(theirs.detach())
            if own.shape != expected.shape or not bool(
                (own.isfinite() == expected.isfinite()).all()
            ):
                return False
            if not own.numel():
                continue
            moved = (theirs.detach() - begun).abs().max()
            allowed = 1e-3 * moved + 4 * torch.finfo(own.dtype).eps * expected.abs().max()
            if bool((own - expected).abs().max() > allowed):
                return False
        return True

    def has_moved(self) -> bool:
        """Whether every parameter has moved by more than rounding hides."""
        for parameter, begun in zip(self._parameters, self._begun, strict=True):
            moved = (parameter.detach() - begun).abs().max()
            if bool(moved < 100 * torch.finfo(begun.dtype).eps * begun.abs().max()):
                return False
        return True

    def has_other_shapes(self) -> bool:
        """Whether a moment is of another shape than its parameter."""
        states = cast("dict[torch.Tensor, Any]", self._optimizer.state)
        return any(
            isinstance(value, torch.Tensor) and value.ndim and value.shape != parameter.shape
            for parameter, kept in states.items()
            for value in (cast("dict[str, Any]", kept).values() if isinstance(kept, dict) else ())
        )

    def _values(self, kind: _Kind, seed: int, *, more: float = 2.0) -> torch.Tensor:
        """Whole values; each part is ``more`` times as large as the one before, up to the third."""
        device = next(iter(self._kinds[kind])).device
        generator = torch.Generator().manual_seed(seed)
        values = 0.02 * torch.randn(kind.shape, generator=generator, dtype=torch.float64)
        for at, rows in enumerate(values.chunk(self._num_shards) if kind.shape else ()):
            rows.mul_(more ** (at % 3))
        return values.to(device, kind.dtype)

    def _rows(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part, as `fully_shard` cuts it; no row if there are fewer rows than ranks."""
        parts = whole.chunk(self._num_shards)
        rank = cast("int", self._rank)
        return parts[rank] if rank < len(parts) else whole[:0]

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        if self._rank is None:
            return whole.clone()
        if not self._over_ranks:
            return self._rows(whole).clone()
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(whole.device.type, (self._num_shards,))
        return distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)


def _of_the_user(hook: Any) -> bool:
    """Whether a hook of an optimizer is the user's: Workbench's own read no parameter."""
    return not str(getattr(hook, "__module__", "")).startswith("workbench.")


def _kinds(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]
) -> dict[_Kind, list[torch.Tensor]]:
    """The kinds of ``parameters`` that the optimizer trains."""
    sharded = {id(parameter) for parameter in parameters}
    found: dict[_Kind, list[torch.Tensor]] = {}
    groups: list[dict[str, Any]] = optimizer.param_groups
    for at, group in enumerate(groups):
        for parameter in group["params"]:
            if id(parameter) in sharded and parameter.requires_grad:
                shape = tuple(min(side, _LONGEST) for side in parameter.shape)
                dtype = torch.float32 if parameter.dtype in _ROUNDED else parameter.dtype
                found.setdefault(_Kind(at, shape, dtype), []).append(parameter)
    return found


def _copy(
    optimizer: torch.optim.Optimizer,
    kinds: dict[_Kind, list[torch.Tensor]],
    parameters: list[nn.Parameter],
) -> torch.optim.Optimizer:
    """Copy ``optimizer`` as it is before any step, with ``parameters`` as its own.

    Wherever it holds a real parameter, in lists of its own, the copy holds the one of its kind.
    """
    made = object.__new__(type(optimizer))
    memo: dict[int, Any] = {id(optimizer): made}
    for those, trial in zip(kinds.values(), parameters, strict=True):
        memo |= {id(one): trial for one in those}
    groups: list[dict[str, Any]] = optimizer.param_groups
    left_out = [p for group in groups for p in group["params"] if id(p) not in memo]
    memo |= {id(one): parameters[0] for one in left_out}
    apart = {"state", "param_groups", "step", *_HOOKS}  # a schedule assigns its own ``step``
    own = {name: value for name, value in vars(optimizer).items() if name not in apart}
    vars(made).update(copy.deepcopy(own, memo))
    for name in _HOOKS:
        setattr(made, name, OrderedDict())
    made.state = defaultdict(dict)
    made.param_groups = []
    for at, group in enumerate(groups):
        settings = {name: value for name, value in group.items() if name != "params"}
        mine = [one for kind, one in zip(kinds, parameters, strict=True) if kind.group == at]
        made.param_groups.append({**_at_a_rate(copy.deepcopy(settings, memo)), "params": mine})
    return made


def _at_a_rate(settings: dict[str, Any]) -> dict[str, Any]:
    rate = settings.get("lr")
    if isinstance(rate, torch.Tensor):
        rate.clamp_(_SLOWEST, _FASTEST)
    elif isinstance(rate, (int, float)):
        settings["lr"] = min(max(float(rate), _SLOWEST), _FASTEST)
    return settings


def _random_states(device: torch.device) -> list[torch.Tensor]:
    on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_device]


@contextlib.contextmanager
def _untouched(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Undo what a copy changes of the optimizer itself, through a function that both have.

    What is drawn inside does not change the process's random state: an optimizer may draw noise.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    parameters = [group["params"] for group in groups]
    kept = ObjectCopy({type(optimizer).__name__: optimizer}, opaque=parameters)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        kept.restore()
