"""The private parts of AOTAutograd behind a compiled node, each wrapped once.

Like the rest of `torch_private`, read in torch 2.13 (``torch/_functorch/_aot_autograd``) and tested
with it.

``CompiledFunctionBackward`` is the node of a custom Function whose class belongs to one compiled
region. That class keeps the backward graph that AOTAutograd made of it, as ``torch.fx`` nodes, as
long as the region can run: torch lowers a copy. Nodes know what they are the backward of until
torch writes the region to its cache on disk: ``serialize_graph_module`` then empties the ``meta``
of every node, including those of the graph that remains alive. `keep_when_cached` reads the
relevant information right before that and puts it into the ``meta`` of the graph as a whole, which
torch also empties, but then stores with the graph. So it is available in this process and in any
later one that finds the region in the cache, and is removed with the region. The cost is one read
of each region, when it is compiled; a step, the key of a cache entry and what is compiled are not
changed.
"""

# pyright: reportPrivateUsage=false
# (this file exists to hold the private uses)

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.torch_private.autograd import forward_class
from workbench.torch_private.lookup import Check, expect, resolve

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from torch.fx import GraphModule

_KEY = "workbench.backward_graph/1"
"""The number is the version of the stored format: a cache outlives the program that wrote it."""
_COMPILER = "torch._functorch._aot_autograd.graph_compile"


def backward_graph(node: Node) -> GraphModule | None:
    """Return the backward graph of a compiled node; None if the region came from torch's cache."""
    return getattr(_lazy_backward(node), "bw_module", None)


def kept(node: Node) -> Any:
    """Return what `keep_when_cached` kept of a compiled node's backward graph, or None."""
    graph = backward_graph(node)
    if graph is not None:
        return graph.meta.get(_KEY)
    return _stored(node).get("meta", {}).get(_KEY)


def cached_code(node: Node) -> str:
    """Return the Python code of a backward graph that torch read from its cache, or ``""``.

    Calling ``bw_module_fn`` would rebuild the graph by tracing this code; here nothing runs.
    """
    return str(_stored(node).get("_code", ""))


def keep_when_cached(read: Callable[[GraphModule], Any]) -> bool:
    """Keep what ``read`` returns of every backward graph that torch is about to cache.

    Args:
        read: called once for each, with the graph; returns plain data that can be pickled. If it
            raises, this counts as None.

    Returns:
        Whether it is installed, which is only possible once the compiler is imported, as the first
        ``torch.compile(...)`` does.
    """
    compiler: Any = sys.modules.get(_COMPILER)
    serialize = getattr(compiler, "serialize_graph_module", None)
    if serialize is None:
        return False
    if hasattr(serialize, "_workbench"):
        return True

    def keep_and_serialize(graph: GraphModule) -> Any:
        try:
            found = read(graph)
        except Exception:  # noqa: BLE001 - in the user's step: a reader must not fail a compile
            found = None
        result = serialize(graph)  # empties graph.meta and stores the emptied one
        if found is not None:
            graph.meta[_KEY] = found
        return result

    keep_and_serialize._workbench = True  # type: ignore[attr-defined]
    compiler.serialize_graph_module = keep_and_serialize
    return True


def _lazy_backward(node: Node) -> Any:
    return getattr(forward_class(node), "_lazy_backward_info", None)


def _stored(node: Node) -> dict[str, Any]:
    """Return attributes of the backward graph as stored in torch's cache."""
    load = getattr(_lazy_backward(node), "bw_module_fn", None)
    serialized = getattr(load, "__self__", None)  # a SerializedGraphModule
    arguments = getattr(serialized, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], dict) else {}


# -- checks ---------------------------------------------------------------------------------


_WRAPPERS = "torch._functorch._aot_autograd.runtime_wrappers"


def _check_cached() -> None:
    from torch import fx, nn

    graph = fx.Graph()  # by hand: tracing replaces the call of every module meanwhile
    graph.output(graph.placeholder("value"))
    module = fx.GraphModule(nn.Module(), graph)
    module.meta[_KEY] = "kept"
    stored = resolve(f"{_COMPILER}.serialize_graph_module")(module)
    attributes: Any = stored.args[0]
    expect("forward" in attributes.get("_code", ""), "the code of a graph is stored elsewhere")
    expect("meta" in attributes, "what is known of a graph is stored elsewhere")
    expect(callable(stored.deserialize), "a stored graph is read in another way")


def _check_lazy() -> None:
    for name, attribute in (
        ("AutogradLazyBackwardCompileInfo", "bw_module"),
        ("CachedAutogradLazyBackwardCompileInfo", "bw_module_fn"),
    ):
        fields = resolve(f"{_WRAPPERS}.{name}").__dataclass_fields__
        expect(attribute in fields, f"{name} has no {attribute}")


CHECKS = (
    Check(
        (f"{_COMPILER}.serialize_graph_module",),
        "the backward of compiled regions that are read from torch's cache",
        _check_cached,
    ),
    Check(
        (
            f"{_WRAPPERS}.AutogradLazyBackwardCompileInfo",
            f"{_WRAPPERS}.CachedAutogradLazyBackwardCompileInfo",
        ),
        "the backward of compiled regions",
        _check_lazy,
    ),
)
