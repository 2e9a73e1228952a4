"""Internals of Dynamo and Inductor that are read, in one module.

- The *structured trace*: torch reports to the logger ``torch.__trace`` everything that
  ``TORCH_TRACE`` and tlparse show, as soon as the logger has a handler
  (`torch._logging._internal.trace_structured`). A record has ``metadata``, a mapping of one named
  event and of the compile id, and ``payload``, a text. Outside of compilations nothing is reported.
- The *frame* of ``_compile`` in ``torch/_dynamo/convert_frame.py``, which is on the stack while a
  function is being compiled: it has the code object and the locals of that function, and further
  out are the functions that called it, up to the wrapper that `torch.compile` made.
- The function that was passed to `torch.compile`, from an attribute of its wrapper.
- What is kept of earlier compilations: Dynamo's list of the code that it created, and the variants
  of one piece of code. Resetting the compiler empties both.

``tests/unit/torch_private/test_dynamo.py`` fails loudly when one of them moves.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from workbench.torch_private.lookup import Check, expect, resolve
from workbench.torch_private.modules import COMPILED_CALL

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from torch import nn

TRACE_LOGGER = "torch.__trace"
"""Name of the logger of the structured trace."""
RESUMED = "torch_dynamo_resume_in_"
"""Prefix of the name of a function that continues after a graph break; it is followed by the
function's name, ``_at_`` and the line."""

_CONVERT_FRAME = os.path.join("torch", "_dynamo", "convert_frame.py")  # noqa: PTH118 - compared as text
_EVAL_FRAME = os.path.join("torch", "_dynamo", "eval_frame.py")  # noqa: PTH118 - as above
_ORIGINAL = "_torchdynamo_orig_callable"


def trace_handler(folder: str) -> logging.Handler:
    """Return torch's handler for ``TORCH_TRACE=folder``: a file per process and rank, made late."""
    from torch._logging import _internal  # pyright: ignore[reportPrivateUsage] - as this file does

    handler = _internal.LazyTraceHandler(folder)
    handler.setFormatter(_internal.TorchLogsFormatter(trace=True))
    return handler


@dataclass(frozen=True)
class Traced:
    """One event of the structured trace."""

    kind: str
    """``dynamo_start``; for an artifact its name: ``dynamo_graph_break_reason``."""
    compile_id: str
    """``3/1``: the second compilation of the fourth frame; empty outside of a compilation."""
    details: Mapping[str, Any]
    payload: str


def traced(record: Any) -> Traced | None:
    """Return the event in a record of the trace logger; None if it is not one of a compilation."""
    metadata: dict[str, Any] = getattr(record, "metadata", None) or {}
    frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
    if frame is None or number is None or metadata.get("compiled_autograd_id") is not None:
        return None
    kind = next(iter(metadata))
    details: Any = metadata[kind]
    if kind == "artifact" and isinstance(details, Mapping):
        kind = str(cast(Mapping[str, Any], details).get("name", ""))
    known = cast(Mapping[str, Any], details) if isinstance(details, Mapping) else {}
    return Traced(kind, f"{frame}/{number}", known, getattr(record, "payload", None) or "")


@dataclass(frozen=True)
class Compiling:
    """The function that is being compiled on this thread, and the one that was compiled first."""

    code: CodeType
    root: CodeType
    """The function that was passed to `torch.compile`, or `code` itself."""
    root_locals: Mapping[str, Any]
    """Its arguments; may be read only while it is being compiled."""


def being_compiled() -> Compiling | None:
    """Return what Dynamo is compiling on this thread right now; None if it is not compiling."""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] - the stack as it is
    while frame is not None and not _is_compile(frame):
        frame = frame.f_back
    if frame is None:
        return None
    code, own_locals = frame.f_locals.get("code"), frame.f_locals.get("locals")
    if code is None or own_locals is None:
        return None
    root, root_locals = code, own_locals
    outer = frame.f_back
    while outer is not None and not outer.f_code.co_filename.endswith(_EVAL_FRAME):
        if not _is_machinery(outer):
            root, root_locals = outer.f_code, outer.f_locals
        outer = outer.f_back
    if outer is None:  # no wrapper around it: the frames found are callers, not compiled
        root, root_locals = code, own_locals
    return Compiling(code, root, root_locals)


def _is_compile(frame: FrameType) -> bool:
    return _is_frame_of_compile(frame.f_code)


def _is_frame_of_compile(code: CodeType) -> bool:
    return code.co_name == "_compile" and code.co_filename.endswith(_CONVERT_FRAME)


@functools.lru_cache(maxsize=256)
def _is_library(filename: str) -> bool:
    import torch

    return filename.startswith(os.path.dirname(torch.__file__) + os.sep)  # noqa: PTH120 - as text


def _is_machinery(frame: FrameType) -> bool:
    """Return whether a frame is torch's own: Dynamo's, or ``nn.Module.__call__``."""
    return _is_library(frame.f_code.co_filename)


def region_name(module: nn.Module) -> str:
    """Return the name of the code object by which a module is compiled in place, or ``""``.

    A step whose graph is being captured calls the module through a function around that call.
    """
    installed = module.__dict__.get(COMPILED_CALL)
    around = getattr(installed, "__closure__", None) or ()
    for call in (installed, *(cell.cell_contents for cell in around)):
        if isinstance(call, functools.partial):
            code = getattr(getattr(call.func, _ORIGINAL, None), "__code__", None)
            return getattr(code, "co_name", "")
    return ""


def num_compiled() -> int:
    """Return the number of compiled pieces of code that this process keeps: graphs, as a rule."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    kept = getattr(getattr(dynamo, "output_codes", None), "seen", ())
    return sum(1 for reference in list(kept) if reference() is not None)


def num_variants(code: CodeType) -> int:
    """Return the number of compiled variants of a piece of code, without those after its breaks."""
    if "torch._dynamo.convert_frame" not in sys.modules:
        return 0
    import torch._C._dynamo.eval_frame as native

    frames: Any = native
    return len(frames._debug_get_cache_entry_list(code))


@functools.cache
def operation_names() -> frozenset[str]:
    """Return the names of all operations of torch, without overloads: ``gelu``, ``mm``."""
    import torch

    # only used here: the dispatcher's own list
    listed: list[str] = torch._C._dispatch_get_all_op_names()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    kinds = ("aten::", "prims::")
    names = (name.partition("::")[2].partition(".")[0] for name in listed if name.startswith(kinds))
    return frozenset(name for name in names if not name.endswith("_"))


# -- checks ---------------------------------------------------------------------------------


def _check_trace() -> None:
    logger = resolve("torch._logging._internal.trace_log")
    expect(logger.name == TRACE_LOGGER, f"the structured trace is reported to {logger.name}")
    expect(callable(resolve("torch._logging._internal.LazyTraceHandler")), "no trace is written")
    expect(callable(resolve("torch._logging._internal.TorchLogsFormatter")), "no trace is written")
    if any(getattr(handler, "root_dir", None) for handler in logger.handlers):
        return  # the trace is kept in a folder: nothing of ours is written to it
    seen: list[Traced] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata: dict[str, Any] = getattr(record, "metadata", {})
            # not an event of the compilations of another thread
            if metadata.get("artifact", {}).get("name") == "workbench":
                found = traced(
                    SimpleNamespace(
                        metadata={**metadata, "frame_id": 3, "frame_compile_id": 1},
                        payload=getattr(record, "payload", None),
                    )
                )
                if found is not None:
                    seen.append(found)

    listener = Listener()
    logger.addHandler(listener)
    try:
        resolve("torch._logging._internal.trace_structured")(
            "artifact", lambda: {"name": "workbench"}, payload_fn=lambda: "text"
        )
    finally:
        logger.removeHandler(listener)
    expect(seen and seen[0].payload == "text", "an event of the trace has another form")
    expect(
        seen[0].kind == "workbench" and seen[0].compile_id == "3/1",
        "an event is reported in another way",
    )


def _check_frames() -> None:
    code = resolve("torch._dynamo.convert_frame._compile").__code__
    expect(_is_frame_of_compile(code), "a function is compiled in another file")
    names = code.co_varnames + code.co_cellvars
    expect({"code", "locals"} <= set(names), "a function's code and variables are elsewhere")
    wrapper = resolve("torch._dynamo.eval_frame")
    expect(str(wrapper.__file__).endswith(_EVAL_FRAME), "torch.compile is in another file")
    prefix = resolve("torch._dynamo.resume_execution.TORCH_DYNAMO_RESUME_IN_PREFIX")
    expect(prefix.startswith(RESUMED.removesuffix("_")), "what follows a break has another name")


def _check_kept() -> None:
    seen = resolve("torch._dynamo.convert_frame.output_codes").seen
    expect(iter(seen) is not None, "the compiled code is not listed")
    expect(num_variants(_check_kept.__code__) == 0, "a function that is not compiled has variants")


def _check_names() -> None:
    operation_names.cache_clear()
    expect({"gelu", "mm"} <= operation_names(), "operations are not listed")


CHECKS = (
    Check(
        (
            "torch._logging._internal.trace_log",
            "torch._logging._internal.trace_structured",
            "torch._logging._internal.LazyTraceHandler",
            "torch._logging._internal.TorchLogsFormatter",
        ),
        "the compile report",
        _check_trace,
    ),
    Check(
        (
            "torch._dynamo.convert_frame._compile",
            "torch._dynamo.resume_execution.TORCH_DYNAMO_RESUME_IN_PREFIX",
        ),
        "which function is being compiled",
        _check_frames,
    ),
    Check(
        (
            "torch._dynamo.convert_frame.output_codes",
            "torch._C._dynamo.eval_frame._debug_get_cache_entry_list",
        ),
        "the number of compiled variants",
        _check_kept,
    ),
    Check(
        ("torch._C._dispatch_get_all_op_names",), "the operations in a kernel's name", _check_names
    ),
)
