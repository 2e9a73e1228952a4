"""Kernels of a module that Inductor generated: source, what each fused, how often it runs.

Inductor writes one Python module per graph: kernels as strings, then a ``call`` that allocates
buffers and launches them. It reports which operations a kernel fused

- in its provenance (``INDUCTOR_PROVENANCE``), complete, if the user has turned that on: it is off
  by default, and turning it on would change the keys of the cache on disk;
- in a comment, ``Original ATen: [aten.t, aten.mm]``, above Triton kernels and library calls;
- in the kernel's name, ``cpp_fused_gelu_native_layer_norm_0``: the original ATen operations in
  alphabetical order, ten at most (``torch/_inductor/utils.py: get_fused_kernel_name``).

The first of these that exists is used. After a hit in the cache on disk the module's text is
reported again, so kernels are known then too.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_NAMED = 10
"""Maximum number of operations in a kernel's name
(``torch._inductor.config.kernel_name_max_ops``)."""

_KIND = re.compile(r"^# AOT ID: \['\w*?_?(?P<kind>forward|backward|inference)'\]", re.MULTILINE)
_KERNEL = re.compile(
    r"^(?P<name>\w+) = async_compile\.(?P<how>\w+)\((?:(?!^async_compile\.wait).)*?r?'''\n?"
    r"(?P<code>.*?)'''",
    re.MULTILINE | re.DOTALL,
)
_CALL = re.compile(r"^(?P<indent> *)def (?:call|partition_\d+)\(.*$", re.MULTILINE)
_LIBRARY = re.compile(
    r"^\s+(?:[\w, ]+ = )?(?P<name>extern_kernels\.\w+|(?:torch\.ops\.|aten\.)\w+(?:\.\w+)*)\("
)
_ORIGINAL = re.compile(r"^\s*# .*Original ATen: \[(?P<ops>[^\]]*)\]")
_FUSED = re.compile(r"^(?:cpp|triton)_(?:\w{3}_)?fused_(?P<ops>.+?)_?\d+$")
_NO_KERNEL = ("torch.ops.inductor.", "aten.empty")
"""Calls that only allocate or alias."""
_LANGUAGES = {"cpp_pybinding": "C++", "cpp": "C++", "triton": "Triton"}


@dataclass(frozen=True)
class Kernel:
    """One kernel, or library function, of a generated module."""

    name: str
    language: str
    operations: tuple[str, ...]
    complete: bool
    launches: int
    code: str


@dataclass(frozen=True)
class Module:
    """A generated module: the forward or the backward of one graph."""

    backward: bool
    kernels: tuple[Kernel, ...]

    @property
    def launches(self) -> int:
        """Number of kernels and library functions that one run of it calls."""
        return sum(kernel.launches for kernel in self.kernels)


def read_module(
    text: str, names: frozenset[str], provenance: Mapping[str, Sequence[str]] | None = None
) -> Module:
    """Read the kernels in ``text``, in the order of their definition, then library functions.

    Args:
        text: the module that Inductor generated.
        names: all existing operations, without namespace and overload.
        provenance: kernel -> the operations it was fused from, if Inductor keeps it.
    """
    kind = _KIND.search(text)
    lines = _body(text)
    known = provenance or {}
    written = [_written(found, text, lines, names, known) for found in _KERNEL.finditer(text)]
    return Module(
        backward=kind is not None and kind["kind"] == "backward",
        kernels=(*written, *_library_calls(lines)),
    )


def _body(text: str) -> list[str]:
    """Return the lines of all functions that launch kernels."""
    lines: list[str] = []
    for found in _CALL.finditer(text):
        indent = found["indent"]
        for line in text[found.end() + 1 :].splitlines():
            if line.strip() and not line.startswith(f"{indent} "):
                break
            lines.append(line)
    return lines


def _written(
    found: re.Match[str],
    text: str,
    lines: Sequence[str],
    names: frozenset[str],
    provenance: Mapping[str, Sequence[str]],
) -> Kernel:
    name = found["name"]
    called = re.compile(rf"^\s+{name}(?:\.run)?\(")
    operations, complete = _operations(name, _comment_above(text, found.start()), names, provenance)
    return Kernel(
        name=name,
        language=_LANGUAGES.get(found["how"], found["how"]),
        operations=operations,
        complete=complete,
        launches=sum(1 for line in lines if called.match(line)),
        code=found["code"],
    )


def _operations(
    name: str, comment: str, names: frozenset[str], provenance: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], bool]:
    known = next((ops for key, ops in provenance.items() if key.split(":")[0] == name), None)
    if known:
        return tuple(known), True
    original = _ORIGINAL.match(comment)
    if original:
        return _listed(original["ops"]), True
    fused = _FUSED.match(name)
    found = split_name(fused["ops"], names) if fused else ()
    return tuple(f"aten.{op}" for op in found), bool(found) and len(found) < MOST_NAMED


def _comment_above(text: str, start: int) -> str:
    """Return the comment line about operations right above a definition, or ``""``."""
    for line in reversed(text[max(0, start - 20_000) : start].splitlines()):
        if not line.startswith("#"):
            return ""
        if _ORIGINAL.match(line):
            return line
    return ""


def _library_calls(lines: Sequence[str]) -> list[Kernel]:
    """Return one entry for every library function, with the operations it stands for."""
    counted: Counter[tuple[str, tuple[str, ...]]] = Counter()
    operations: tuple[str, ...] = ()
    for line in lines:
        original = _ORIGINAL.match(line)
        if original:
            operations = _listed(original["ops"])
        called = _LIBRARY.match(line)
        if called and not called["name"].startswith(_NO_KERNEL):
            counted[called["name"], operations] += 1
            operations = ()
    return [
        Kernel(name, "library", ops, complete=bool(ops), launches=count, code="")
        for (name, ops), count in counted.items()
    ]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(op.strip() for op in text.split(",") if op.strip()))


@functools.lru_cache(maxsize=1024)
def split_name(text: str, names: frozenset[str]) -> tuple[str, ...]:
    """Split ``gelu_native_layer_norm`` into operations: fewest, in alphabetical order; () for none.

    Names of operations contain underscores themselves, so a name is read as the smallest possible
    number of operations: ``native_layer_norm_backward`` is one, not two.
    """
    parts = text.split("_")
    best: list[tuple[str, ...] | None] = [(), *(None for _ in parts)]
    for end in range(1, len(parts) + 1):
        for start in range(end):
            before, op = best[start], "_".join(parts[start:end])
            if before is None or op not in names or (before and before[-1] >= op):
                continue
            now = best[end]
            if now is None or len(before) + 1 < len(now):
                best[end] = (*before, op)
    return best[-1] or ()
