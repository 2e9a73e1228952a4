"""Compile: run the model, or each of its blocks, through ``torch.compile``.

Modules are compiled *in place*: as in `nn.Module.compile`, only the module's
``_compiled_call_impl`` is set. Nothing is wrapped, so names in ``state_dict`` do not change, and
restoring the attribute undoes it exactly. `nn.Module.compile` itself is not used: it starts in a
frame of torch's own, which Dynamo skips, so a block that is an ``nn.Sequential`` or an
``nn.Linear`` would silently stay eager (torch 2.13). Our frame passes the module as an argument, so
that equal blocks share one compiled region.

``blocks`` (`workbench.modes.core.model_blocks`) is the first choice: it compiles in a fraction of
the time of ``whole``, which can fuse across blocks. Graph breaks are allowed, because
data-dependent Python control flow is welcome in a model; only the code between them is compiled.
Other settings of ``torch.compile`` follow after commas (`workbench.modes.compile.options`).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from workbench.modes.compile.graph_breaks import without_breaks
from workbench.modes.compile.options import CompileOptions, mode_settings
from workbench.modes.compile.toolchain import missing_for_compile, use_persistent_cache
from workbench.modes.core.base import Mode
from workbench.modes.core.model_blocks import find_blocks
from workbench.records import ModeChoice
from workbench.torch_private.compiler import inductor, recompile_limit
from workbench.torch_private.modules import COMPILED_CALL

_VARIANTS_PER_BLOCK = 4
"""Train and eval, full and last batch: how often one block's code is compiled in normal use."""


class Compile(Mode):
    """Compilation: off, one compiled region per block, or one for the whole model."""

    name: ClassVar[str] = "compile"
    label: ClassVar[str] = "Compile"
    default: ClassVar[str] = "off"
    values: ClassVar[tuple[str, ...]] = ("off", "blocks", "whole")
    more_values: ClassVar[str] = "options after blocks or whole, as in whole,dynamic,fullgraph"
    order: ClassVar[int] = 30

    def __init__(self, value: str, device: torch.device) -> None:
        self.options = CompileOptions.parse(value)
        super().__init__(str(self.options), device)
        self.baked_in = ""
        """Choices of other modes that change a region without Dynamo noticing
        (`Mode.unguarded`)."""
        self._before: list[tuple[weakref.ref[nn.Module], Any]] = []

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """off, blocks and whole; the last two need a toolchain for ``device``."""
        missing = missing_for_compile(device)
        if missing is None:
            return tuple(ModeChoice(value=value) for value in cls.values)
        refused = (
            ModeChoice(
                value=value,
                available=False,
                why=missing.why,
                remedy=missing.remedy,
                commands=missing.commands,
            )
            for value in cls.values[1:]
        )
        return ModeChoice(value="off"), *refused

    @classmethod
    def check(cls, value: str) -> None:
        """Refuse what `CompileOptions` cannot parse."""
        CompileOptions.parse(value)

    @property
    def offered_as(self) -> str:
        """The regions alone: options need nothing more than the regions that they are for."""
        return self.options.regions

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:  # noqa: ARG002 - any model
        """`choices`, and the value itself if it has options, with their effect on this device."""
        offered = self.choices(self.device)
        if self.value in self.values:
            return offered
        regions = next(choice for choice in offered if choice.value == self.options.regions)
        why = self.options.without_effect(self.device)
        own = replace(regions, value=self.value)
        if own.available and why:
            own = replace(own, why=why, remedy="Leave it out here.")
        return *offered, own

    @classmethod
    def needs(cls, device: torch.device) -> str:
        """``needs a C++ compiler`` if the toolchain is missing."""
        missing = missing_for_compile(device)
        return missing.short if missing else ""

    def targets(self, model: nn.Module) -> list[nn.Module]:
        """The modules that `attach` compiles: none, the blocks, or the model itself."""
        if self.value == self.default:
            return []
        return (find_blocks(model) or [model]) if self.options.regions == "blocks" else [model]

    def attach(self, model: nn.Module) -> None:
        """Compile the targets; the cost is paid by the first forward, not here."""
        targets = self.targets(model)
        if not targets:
            return
        use_persistent_cache()
        arguments = _arguments(self.options, self.baked_in, len(targets))
        for module in targets:
            region = _region_of(model, module, self.options.without_regions)
            compiled = torch.compile(region, **arguments)
            if self.options.fullgraph:
                compiled = without_breaks(compiled, self.value)
            self._before.append((weakref.ref(module), module.__dict__.get(COMPILED_CALL)))
            module.__dict__[COMPILED_CALL] = functools.partial(compiled, module)

    def detach(self, model: nn.Module) -> None:  # noqa: ARG002 - what was attached is remembered
        """Restore the call that every compiled module had."""
        for reference, before in reversed(self._before):
            module = reference()
            if module is None:
                continue
            module.__dict__.pop(COMPILED_CALL, None)
            if before is not None:
                module.__dict__[COMPILED_CALL] = before
        self._before.clear()


_regions: weakref.WeakKeyDictionary[nn.Module, dict[Any, types.FunctionType]] = (
    weakref.WeakKeyDictionary()
)
_numbers = itertools.count(1)


def regions_of(model: nn.Module) -> list[types.CodeType]:
    """Code of every region of ``model`` for which compile was switched on, now or before."""
    return [function.__code__ for function in _regions.get(model, {}).values()]


def _call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """The frame at which Dynamo starts: hooks and forward of ``module``."""
    return module._call_impl(*args, **kwargs)  # pyright: ignore[reportPrivateUsage] - what nn.Module.compile compiles


def _region_of(model: nn.Module, module: nn.Module, options: str) -> types.FunctionType:
    """Return `_call` with a code object for ``module`` and the blocks of ``model`` that equal it.

    Dynamo keeps compiled variants, and counts them against its limit, by code object; what it
    learns about changing shapes it keeps by the name of the code. So equal blocks share one, a
    model finds its own again when compile is switched back on, and blocks of other shapes do not
    make each other's shapes dynamic. Every set of ``options`` has a code object of its own: guards
    know nothing of options, and a region that was compiled with breaks would continue to break
    under ``fullgraph``.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)
    key = (type(module), shapes, options)
    regions = _regions.setdefault(model, {})
    if key not in regions:
        name = f"{type(module).__name__}_region_{next(_numbers)}"
        code = _call.__code__.replace(co_name=name, co_qualname=name)
        regions[key] = types.FunctionType(code, _call.__globals__)
    return regions[key]


def _arguments(options: CompileOptions, baked_in: str, num_targets: int) -> dict[str, Any]:
    """Arguments of ``torch.compile`` for each region."""
    found = options.arguments()
    found["backend"] = _Inductor(baked_in) if baked_in else "inductor"
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        # blocks of one class share their code's limit; past it they would run uncompiled
        found["recompile_limit"] = max(recompile_limit(), _VARIANTS_PER_BLOCK * num_targets)
    return found


class _Inductor:
    """Inductor under a name of its own.

    Dynamo reuses compiled code if its guards hold and the backend is equal. The attention kernel is
    chosen while compiling and no guard covers it, so a region compiled for flash would continue to
    run flash after a switch to math. A backend that is equal only for an equal key keeps the two
    apart and finds the first again after switching back. ``torch.compile`` also compares its own
    mode and ``dynamic``, and passes the mode on to a backend that it does not know.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(
        self, graph: torch.fx.GraphModule, inputs: list[Any], *, mode: str = ""
    ) -> Callable[..., Any]:
        return inductor()(graph, inputs, config_patches=mode_settings(mode))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inductor) and other.key == self.key

    def __hash__(self) -> int:
        return hash((_Inductor, self.key))
