"""Which modules of a model are its *blocks*: what is worth compiling one by one.

Compiling a block that occurs twelve times compiles it once, so it costs a fraction of compiling the
whole model and gives most of the gain. A block is

1. a module whose class is repeated inside ``ModuleList``, ``ModuleDict`` or ``Sequential``
   containers, the outermost where such modules nest;
2. otherwise, if nothing repeats, a direct child of the model that has parameters.

A single ``nn.Linear`` or ``nn.Conv2d`` is not a block: there is nothing in it to fuse.

Source of the rule: torchtitan and the "Regional compilation" recipe of the PyTorch tutorials
compile repeated layers; this is the same choice made without naming the layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_UNCALLABLE = (nn.ModuleList, nn.ModuleDict)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of ``model``, in the order they were defined; empty when it has none."""
    return _repeated(model) or [child for child in model.children() if _is_block(child)]


def blocks_in(module: nn.Module) -> list[nn.Module]:
    """Blocks directly in a container; for any other module, the module itself if it is a block."""
    if isinstance(module, _CONTAINERS):
        inside = [child for child in module.children() if _is_block(child)]
        if inside or isinstance(module, _UNCALLABLE):
            return inside
    return [module] if _is_block(module) else []


def _repeated(model: nn.Module) -> list[nn.Module]:
    counts = Counter(type(child) for child in _listed(model))
    repeated = {id(child) for child in _listed(model) if counts[type(child)] > 1}
    return list(_outermost(model, repeated, set()))


def _listed(model: nn.Module) -> Iterator[nn.Module]:
    """Candidates that are directly in a container, each once."""
    seen: set[int] = set()
    for container in model.modules():
        if not isinstance(container, _CONTAINERS):
            continue
        for child in container.children():
            if _is_block(child) and id(child) not in seen:
                seen.add(id(child))
                yield child


def _outermost(module: nn.Module, wanted: set[int], seen: set[int]) -> Iterator[nn.Module]:
    for child in module.children():
        if id(child) in seen:
            continue
        seen.add(id(child))
        if id(child) in wanted:
            yield child
        else:
            yield from _outermost(child, wanted, seen)


def _is_block(module: nn.Module) -> bool:
    """Whether it is callable, has parameters, and is more than one of torch's own single layers."""
    if isinstance(module, _UNCALLABLE) or next(module.parameters(), None) is None:
        return False
    single_layer = next(module.children(), None) is None
    return not (single_layer and type(module).__module__.startswith("torch.nn."))
