"""Values that Python reads of tensors (``if x.mean() > 0``), and the effect of another answer.

What Python decides by a value that was computed from a batch, it decides for all samples of it.
Ranks that have other samples may decide otherwise. Some of these readings change nothing (a mean
that is logged, a block that is skipped where a mask has no element set), so a batch is computed
once more for each, with another answer. What is decided by a random number is answered otherwise,
too: a step with the other decision will come, and whether that one can be divided is a separate
question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, cast

import torch
from torch.overrides import TorchFunctionMode

from workbench.torch_private.contexts import TorchDispatchMode
from workbench.torch_private.operators import is_written, name_of, schema_arguments
from workbench.torch_private.pytree import tree_leaves
from workbench.torch_private.tensors import storage_identity

_READS = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.allclose.default,
)
_NOT = ("logical_not", "bitwise_not")
_OPPOSITE = {"any": "all", "all": "any"}
_FAR = 1e6
"""Factor by which another number is farther from zero, on either side: beyond any threshold."""
_READERS = ("tolist", "numpy", "__array__", "__dlpack__")
"""Methods of a tensor that expose its memory, for which no operation is called."""

Kind = Literal["yes or no", "number"]


class Other(NamedTuple):
    """A reading that is given another answer."""

    reading: int
    """Index of the reading, from 0."""
    below: bool = False
    """For a number: whether the answer is far below zero instead of far above."""


class Decisions(TorchDispatchMode):
    """Follows what is computed from some tensors, and gives one reading of it another answer.

    Args:
        data: tensors of a batch; what is computed from them is followed.
        chance: whether random numbers are followed, too.
        other: the reading that gets another answer; None: none does.
    """

    def __init__(
        self, data: Iterable[torch.Tensor] = (), *, chance: bool = False, other: Other | None = None
    ) -> None:
        super().__init__()
        self._held: list[torch.UntypedStorage] = []
        self._followed: set[int] = set()
        self.follow(data)
        self._of_any: dict[int, str] = {}
        """Which storages hold the result of an ``any`` or an ``all``."""
        self.chance, self._other = chance, other
        self._methods = _Methods(self)
        self.readings: list[Kind] = []
        """The readings, in order."""
        self.unanswered = ""
        """What else was read, for which no other answer can be given, or ``""``."""

    def __enter__(self) -> Decisions:
        """Observe methods too, which call no operation on the CPU."""
        self._methods.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop observing."""
        super().__exit__(*error)
        self._methods.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and follow the data through it."""
        found = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        given = [one for one in _flat((*args, *(kwargs or {}).values())) if _has_storage(one)]
        is_drawn = self.chance and torch.Tag.nondeterministic_seeded in func.tags
        if not is_drawn and not any(map(self.follows, given)):
            return found
        self.follow((*tree_leaves(found), *_written(func, args)))
        of_any = self._say_any(func, given, found)
        if func in _READS:
            return self.answer(found, of_any)
        return found

    def follow(self, values: Iterable[Any]) -> None:
        """Follow the tensors among these values, too."""
        for one in values:
            if _has_storage(one) and not self.follows(one):
                self._held.append(one.untyped_storage())  # kept alive: no other gets its address
                self._followed.add(storage_identity(one.untyped_storage()))

    def follows(self, tensor: torch.Tensor) -> bool:
        """Return whether it was computed from what is followed."""
        return storage_identity(tensor.untyped_storage()) in self._followed

    def answer(self, found: Any, of_any: str = "") -> Any:
        """Return what Python is given for a value that it reads.

        Args:
            found: the value.
            of_any: ``any`` or ``all``, where the value is the result of one. Then only one of its
                two answers is replaced: a rank on which nothing fulfils the condition rightly skips
                what is done for those that do.
        """
        if isinstance(found, bool):
            if found is (of_any == "any") and of_any:
                return found
            return not found if self._is_other("yes or no") else found
        if isinstance(found, float):
            if not self._is_other("number"):
                return found
            far = _FAR * (1.0 + abs(found))
            return -far if cast("Other", self._other).below else far
        self.unanswered = "a whole number of its data"
        return found

    def _is_other(self, kind: Kind) -> bool:
        self.readings.append(kind)
        return self._other is not None and self._other.reading == len(self.readings) - 1

    def _say_any(self, func: Any, given: list[torch.Tensor], found: Any) -> str:
        """Return whether this, or what it was computed from, is the result of an any or an all."""
        name = name_of(func).rstrip("_")
        named = next(
            (
                self._of_any[key]
                for one in given
                if (key := storage_identity(one.untyped_storage())) in self._of_any
            ),
            "",
        )
        now = name if name in _OPPOSITE else _OPPOSITE[named] if named and name in _NOT else ""
        if now:
            results = [one for one in tree_leaves(found) if _has_storage(one)]
            self._of_any |= {storage_identity(one.untyped_storage()): now for one in results}
        return now or named


class _Methods(TorchFunctionMode):
    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self._decisions = decisions

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check one method or function."""
        found = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        name, decisions = getattr(func, "__name__", ""), self._decisions
        if name not in _READERS or not _has_storage(args[0]) or not decisions.follows(args[0]):
            return found
        if isinstance(found, (bool, float)):
            return decisions.answer(found)
        decisions.unanswered = decisions.unanswered or "the values of a whole tensor"
        return found


def _written(func: Any, args: Any) -> list[Any]:
    """What an operation writes in place."""
    arguments = zip(schema_arguments(func), args, strict=False)
    return [one for spec, one in arguments if is_written(spec)]


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    """Yield what an operation is given: values, and those in lists."""
    for one in values:
        if isinstance(one, list | tuple):
            yield from _flat(cast("Iterable[Any]", one))
        else:
            yield one


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested
