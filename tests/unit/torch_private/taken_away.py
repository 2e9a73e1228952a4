"""Private names of torch are taken away, as if this torch had them no more.

Run as a program, it does so with each name that a check stands for, and prints what the checks
then say: ``{file: {name: [sentences]}}``. In a process of its own, because nothing else may use
torch meanwhile.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from workbench.torch_private.lookup import resolve

NODE = "torch.autograd.graph.Node"
FORWARD_CLASS = "torch.autograd.function.BackwardCFunction._forward_cls"
_ABSENT = object()


@contextmanager
def taken_away(path: str) -> Iterator[None]:
    """Take a name away until the block ends."""
    owner, _, name = path.rpartition(".")
    with ExitStack() as stack:
        if owner == NODE:
            kinds = [one for one in vars(torch._C._functions).values() if isinstance(one, type)]
            kinds += [type(node) for node in _nodes()]
            for kind in {one for one in kinds if name in vars(one)}:
                stack.enter_context(_out_of_class(kind, name))
        elif path == FORWARD_CLASS:
            stack.enter_context(_out_of_functions())
        else:
            stack.enter_context(_out_of(resolve(owner), name))
        yield


def _nodes() -> list[Any]:
    leaf = torch.ones(2, 3, requires_grad=True)
    results = [leaf * 2, leaf + 1, leaf.exp(), leaf.sum(), leaf.double(), leaf.exp() * leaf]
    return [node for one in results for node in (one.grad_fn, one.grad_fn.next_functions[0][0])]


def _out_of(owner: Any, name: str) -> Any:
    if isinstance(owner, type):
        return _out_of_class(owner, name)
    settings = vars(owner).get("_config", {})
    if name in settings and name not in vars(owner):
        return _out_of_table(settings, name)
    return _out_of_table(vars(owner), name)


@contextmanager
def _out_of_table(table: dict[str, Any], name: str) -> Iterator[None]:
    before = table.pop(name)
    try:
        yield
    finally:
        table[name] = before


@contextmanager
def _out_of_class(kind: type, name: str) -> Iterator[None]:
    """Take an attribute out of a class, also of one in C; else out of all of its objects."""
    (table,) = [one for one in gc.get_referents(kind.__dict__) if isinstance(one, dict)][:1]
    before = table.pop(name, _ABSENT)
    of_objects = before is _ABSENT or name in getattr(kind, "__dataclass_fields__", ())
    if of_objects:
        table[name] = property(_raise(name), lambda _self, _value: None, lambda _self: None)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    try:
        yield
    finally:
        if before is _ABSENT:
            del table[name]
        else:
            table[name] = before
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _raise(name: str) -> Callable[[Any], Any]:
    def read(_self: Any) -> Any:
        raise AttributeError(name)

    return read


@contextmanager
def _out_of_functions() -> Iterator[None]:
    """Torch gives the attribute to the class that it makes for every custom Function."""
    meta: Any = torch.autograd.function.FunctionMeta
    made = meta.__init__

    def without(cls: Any, *given: Any, **named: Any) -> None:
        made(cls, *given, **named)
        del cls._backward_cls._forward_cls

    meta.__init__ = without
    try:
        yield
    finally:
        meta.__init__ = made


def main() -> None:
    """Take each name away and print what the checks of its file say."""
    for module in ("torch._dynamo", "torch._inductor.config", "torch.distributed.fsdp"):
        importlib.import_module(module)  # else there is nothing to be checked
    from workbench.torch_private.self_check import FILES, checks_of, problems

    said: dict[str, dict[str, list[str]]] = {}
    for file in sorted({file for files in FILES.values() for file in files}):
        module = importlib.import_module(f"workbench.torch_private.{file}")
        said[file] = {"": [one.sentence for one in problems(checks_of(file))]}
        for name in [name for check in checks_of(file) for name in check.names]:
            with taken_away(name):
                importlib.reload(module)
                said[file][name] = [one.sentence for one in problems(checks_of(file))]
            importlib.reload(module)
        said[file][" "] = [one.sentence for one in problems(checks_of(file))]
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
