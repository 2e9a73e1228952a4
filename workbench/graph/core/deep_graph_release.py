"""Release of a deep graph without overflowing the stack.

torch frees a graph in a loop (``deleteNode``, ``torch/csrc/autograd/function.cpp``), but only
through nodes that nothing else refers to. Accessing a node from Python gives it a wrapper that
stays for the node's life (torch >= 2.12), and from then on freeing the node goes through that
wrapper, one set of C stack frames per node: after a walk over 50,000 nodes in a row, ``del loss``
would crash the process.

So a deep graph that was walked gets a *release list*: a list of its nodes, held by the graph's own
root (in ``Node.metadata``) and therefore alive no longer than the root. When the root dies the list
is passed to a thread that drops the nodes from the root down, each while the next is still held.
"""

from __future__ import annotations

import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.runtime import at_exit
from workbench.torch_private.graph_leaves import DEEP

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_KEY = "workbench.release_list"


def _drop(nodes: list[Node]) -> None:
    """Release ``nodes``, last first, one at a time.

    A node that something else still refers to (for example because the user kept the logits) keeps
    the part of the graph above it alive, so that part gets a release list of its own.
    """
    unshared = _num_own_references()
    while nodes:
        node = nodes.pop()
        if len(nodes) >= DEEP and node.next_functions and sys.getrefcount(node) > unshared:
            above = _above(node)
            _attach(node, [other for other in nodes if other in above])
            nodes = [other for other in nodes if other not in above]


def _num_own_references() -> int:
    """Result of `sys.getrefcount` for an object that only one local variable refers to.

    For a node that C++ refers to, the count is one higher (``c10/util/intrusive_ptr.h``: the
    wrapper is kept while the use count is above one).
    """
    probe = object()
    return sys.getrefcount(probe)


def _above(node: Node) -> set[Node]:
    found: set[Node] = set()
    pending = [node]
    while pending:
        for maker, _ in pending.pop().next_functions:
            if maker is not None and maker not in found:
                found.add(maker)
                pending.append(maker)
    return found


class _Releaser:
    """One thread while any release list exists, none otherwise."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset to the state of a forked process: no release list, and no thread."""
        self._queue: SimpleQueue[list[Node] | None] = SimpleQueue()
        """Its ``put`` may be called from a destructor."""
        self._lock = threading.Lock()
        self._num_lists = 0
        self._thread: threading.Thread | None = None

    def expect(self) -> None:
        """Count a release list that is about to be installed."""
        with self._lock:
            self._num_lists += 1
            if self._num_lists == 1:
                self._thread = threading.Thread(
                    target=self._run, name="workbench-graph-release", daemon=True
                )
                self._thread.start()

    def put(self, nodes: list[Node]) -> None:
        """Drop ``nodes`` soon, last first."""
        self._queue.put(nodes)

    def close(self) -> None:
        """End the thread: the interpreter must not kill it inside a torch destructor."""
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (nodes := self._queue.get()) is not None:
            _drop(nodes)
            with self._lock:
                self._num_lists -= 1
                if self._num_lists == 0:
                    self._thread = None
                    return


_releaser = _Releaser()
at_exit.register(at_exit.Phase.GRAPHS, _releaser.close)
at_exit.register_for_forks(_releaser.forget)


class _ReleaseList:
    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def __del__(self) -> None:
        _releaser.put(self._nodes)


def protect(nodes: list[Node]) -> None:
    """Make the graph of ``nodes`` (in forward order, root last) safe to free if it is deep."""
    _attach(nodes[-1], nodes[:-1])


def _attach(root: Node, nodes: list[Node]) -> None:
    metadata = cast("dict[str, Any]", root.metadata)  # declared as a method, is a property
    if len(nodes) >= DEEP and _KEY not in metadata:
        _releaser.expect()
        metadata[_KEY] = _ReleaseList(nodes)
