"""Why a compiled variant did not fit: Dynamo's failed guard in words, and what to do about it.

Dynamo names one guard for every variant that existed (``torch/_dynamo/guards.py:
get_guard_fail_reason``): ``0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5``, with
the user's line after ``#`` and a stack below, if it knows them. Wordings come from
``torch/csrc/dynamo/guards.cpp``; one that is not known is shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.dynamo.listen.graph_breaks import Place

_ID = re.compile(r"^\d+/\d+: ")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_ARGUMENT = re.compile(r"\bargs\[(\d+)\]")
_STACK = re.compile(r"\b___stack\d+\b")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
_INT_ATTRIBUTE = "allow_unspec_int_on_nn_module"

_DYNAMIC = (
    "Dynamo makes a size that changed dynamic, so one more compilation is all there is. A smaller "
    "last batch goes away with drop_last=True; "
    "torch._dynamo.mark_dynamic(tensor, {0}) makes the size dynamic from the start."
)
_ALWAYS = "Give the compiled code the same {0} at every call."
_EVAL = "None needed between training and evaluation: they are two variants, each compiled once."


@dataclass(frozen=True)
class Reason:
    """A failed guard in words."""

    words: str
    remedy: str
    guard: str
    """The guard without the variant's id and the line it comes from."""
    place: Place | None


def explain(reason: str, parameters: Sequence[str] = (), module: str = "module") -> Reason:
    """Explain Dynamo's ``reason``.

    Args:
        reason: one entry of ``recompile_reasons``.
        parameters: names of the region's positional arguments, if they are passed as ``args``.
        module: name of the local variable that holds the module, ``self`` in its forward.
    """
    text = _ID.sub("", reason.strip())
    head, _, stack = text.partition("\nUser stack trace:")
    guard, _, comment = head.partition("  # ")
    guard = guard.strip() if comment else head.strip()
    frames = [(f["file"], int(f["line"]), f["name"]) for f in _FRAME.finditer(stack)]
    place = frames[-1] if frames else None
    named = _named(guard, parameters)
    words, remedy = _in_words(named, head, module)
    return Reason(words, remedy, guard, place)


def _named(guard: str, parameters: Sequence[str]) -> str:
    """Return the guard with ``args[0]`` replaced by the forward's name for it."""

    def name(found: re.Match[str]) -> str:
        index = int(found[1])
        return parameters[index] if index < len(parameters) else found[0]

    return _STACK.sub("an intermediate value", _ARGUMENT.sub(name, _LOCAL.sub(r"\1", guard)))


def _in_words(guard: str, head: str, module: str) -> tuple[str, str]:
    for pattern, say in _KNOWN:
        found = pattern.search(guard)
        if found:
            return say(found)
    equal = _EQUAL.match(guard)
    if equal:
        return _changed(equal["what"], equal["value"], head, module)
    return f"The condition `{guard}` does not hold any more.", ""


def _changed(what: str, value: str, head: str, module: str) -> tuple[str, str]:
    """Describe an attribute, an argument or a global that has changed."""
    if what.endswith(".training"):
        now = "evaluation" if value == "True" else "training"
        return f"The model went to {now} mode ({what} was {value}).", _EVAL
    own = what.removeprefix(f"{module}.")
    of = " of the module" if own != what else ""
    words = f"{own}{of} was {value} and changed."
    if _INT_ATTRIBUTE in head:
        return words, (
            "Integers of a module are part of the code: keep it in a tensor (register_buffer), or "
            f"set torch._dynamo.config.{_INT_ATTRIBUTE} = True."
        )
    if of:
        return (
            words,
            "Keep it in a tensor (register_buffer): a value in it is not compiled in.",
        )
    return words, (
        "Pass it as a tensor: the value of a Python number is part of the code until Dynamo has "
        "seen it change."
    )


def _size(found: re.Match[str]) -> tuple[str, str]:
    words = f"Dimension {found['dim']} of {found['name']} was {found['old']} and is {found['new']}."
    return words, _DYNAMIC.format(found["dim"])


def _range(found: re.Match[str]) -> tuple[str, str]:
    words = (
        f"Dimension {found['dim']} of {found['name']} is not within {found['low']} to "
        f"{found['high']}, for which the variant before was compiled."
    )
    small = "A size of 0 or 1 always gets code of its own: avoid a batch of one sample."
    return words, small if found["low"] == "2" else ""


def _property(found: re.Match[str]) -> tuple[str, str]:
    what, old, new = found["what"], found["old"].strip(), (found["new"] or "").strip()
    if what == "requires_grad":
        old = {"requires_grad=0": "no gradient", "requires_grad=1": "a gradient"}.get(old, old)
        now = "needs one now" if old == "no gradient" else "needs none now"
        return f"{found['name']} needed {old} and {now}.", _ALWAYS.format("requires_grad")
    words = {"rank": "number of dimensions", "stride": "memory layout"}
    kind = words.get(what, what)
    old, new = _DTYPES.get(old, old), _DTYPES.get(new, new)
    change = f" was {old} and is {new}" if new else " is another"
    return f"The {kind} of {found['name']}{change}.", _ALWAYS.format(kind)


def _global(found: re.Match[str]) -> tuple[str, str]:
    changed = [_STATES.get(word.split("(")[0], word) for word in found["what"].split()]
    words = f"{' and '.join(changed)} changed around the call."
    same = _EVAL if found["what"].strip() == "grad_mode" else _ALWAYS.format("settings")
    return words[:1].upper() + words[1:], same


_STATES = {
    "grad_mode": "whether gradients are recorded",
    "autocast": "autocast",
    "num_threads": "torch's number of threads",
    "deterministic_algorithms": "the use of deterministic algorithms",
    "default_dtype": "the default dtype",
    "allow_tf32": "the use of TF32",
}
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Bool": "bool",
}
"""Names of dtypes in torch's C++, and in Python."""
_EQUAL = re.compile(r"^(?P<what>[\w.\[\]'\"]+) == (?P<value>.+)$", re.DOTALL)
_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[str, str]]], ...] = (
    (
        re.compile(
            r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)\. "
            r"expected (?P<old>\d+), actual (?P<new>\d+)"
        ),
        _size,
    ),
    (
        re.compile(
            r"(?P<low>\d+) <= (?P<name>[\w.\[\]']+)\.size\(\)\[(?P<dim>\d+)\] <= (?P<high>\d+)"
        ),
        _range,
    ),
    (
        re.compile(
            r"tensor '(?P<name>.+?)' (?P<what>rank|dtype|stride|requires_grad|dispatch key set) "
            r"mismatch(?: at index \d+)?\. expected (?P<old>.+?)(?:, actual (?P<new>.+))?$"
        ),
        _property,
    ),
    (
        re.compile(r"^(?P<one>[\w.\[\]']+) is (?P<other>[\w.\[\]']+)$"),
        lambda f: (
            f"{f['one']} and {f['other']} were the same object and are not any more.",
            _ALWAYS.format("arguments twice, or two of their own,"),
        ),
    ),
    (re.compile(r"GLOBAL_STATE changed: (?P<what>.+)"), _global),
    (
        re.compile(r"^len\((?P<name>.+)\) == (?P<old>\d+)"),
        lambda f: (
            f"The length of {f['name']} was {f['old']} and changed.",
            _ALWAYS.format("number of elements"),
        ),
    ),
    (
        re.compile(r"___check_type_id\((?P<name>[^,]+),"),
        lambda f: (f"The type of {f['name']} is another.", _ALWAYS.format("types")),
    ),
    (
        re.compile(r"___check_obj_id\((?P<name>[^,]+),"),
        lambda f: (
            f"{f['name']} is another object than the one that was compiled with.",
            "Keep the object, and change what it holds.",
        ),
    ),
)
