"""Noting what Python asks of tensors while a forward runs.

``if x.max() > 3`` is two torch functions: a comparison, and ``Tensor.__bool__`` of its result. The
first is remembered until the next torch function; the second says where it was asked and how it
came out. ``x.max().item() > 3`` is one, ``item``, and the comparison is read from the code.

Numbers are read right after the user's own read of the device, so that there is no wait that was
not there. A test that comes out the same way again and again is listed a few times and counted. A
fault in here is noted and ends the watch; it never reaches the user.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from workbench.graph import torch_private
from workbench.graph.branch_code import COMPARE, Number, Test, asked, asked_of_number, value_of
from workbench.graph.branches import Asked, BranchesSeen, Repeated
from workbench.graph.lines import shows_model_code
from workbench.graph.tensor_memory import has_own_storage

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from torch.autograd.graph import Node

    from workbench.graph.look import TorchCall

MOST = 64
"""Tests of one forward that are listed."""
MOST_EACH = 8
"""Of these, at one place in one module with one outcome."""
_MOST_KEPT = 1024
"""Tests of all forwards together that are remembered."""
_NUM_NEAR = 128
"""Nodes behind a tested value that are looked at for one of the loss's graph."""

_NAMES = {
    "<": ("lt", "__lt__", "less"),
    "<=": ("le", "__le__", "less_equal"),
    ">": ("gt", "__gt__", "greater"),
    ">=": ("ge", "__ge__", "greater_equal"),
    "==": ("eq", "__eq__"),
    "!=": ("ne", "__ne__", "not_equal"),
}
_COMPARISONS = {name: symbol for symbol, names in _NAMES.items() for name in names}
_TRUTHS = frozenset({"__bool__", "is_nonzero", "equal", "allclose"})
_NUMBERS = frozenset({"item", "__float__", "__int__"})
_ASKS = _TRUTHS | _NUMBERS


class _Compared(NamedTuple):
    """A comparison and what it compared; held until the next torch function."""

    result: torch.Tensor
    symbol: str
    sides: tuple[Any, Any]


class BranchRecorder:
    """Is shown every torch function of one trace on one thread.

    Args:
        module: path of the module that runs now, None outside.
        maker: the node whose value left the graph on the way to a tensor, where one did.
    """

    def __init__(
        self, module: Callable[[], str | None], maker: Callable[[torch.Tensor], Node | None]
    ) -> None:
        self._module = module
        self._maker = maker
        self._compared: _Compared | None = None
        self._asked: deque[Asked] = deque(maxlen=_MOST_KEPT)
        self._tests: dict[tuple[CodeType, int, bool], Test | None] = {}
        self._times: Counter[tuple[Any, ...]] = Counter()
        self._shown: Counter[tuple[Any, ...]] = Counter()
        self._forward = -1
        self._fault = ""

    def new_forward(self) -> None:
        """An outermost forward begins: what is repeated is counted anew."""
        self._forward += 1
        self._times.clear()
        self._shown.clear()

    def seen(self) -> BranchesSeen:
        """What was asked so far. Lets go of the last comparison."""
        self._compared = None
        repeated: dict[tuple[Any, ...], Repeated] = {}
        for key, times in self._times.items():
            place, condition, taken, _ = key
            one = repeated.get(key[:3], Repeated(place, condition, taken, 0, 0))
            total, shown = one.times + times, one.shown + self._shown[key]
            repeated[key[:3]] = Repeated(place, condition, taken, total, shown)
        hidden = tuple(one for one in repeated.values() if one.times > one.shown)
        return BranchesSeen(tuple(self._asked), hidden, self._fault)

    def before(self, func: Any) -> None:
        """A torch function is about to run: nothing is held while it allocates."""
        if self._compared is not None and getattr(func, "__name__", "") != "__bool__":
            self._compared = None

    def after(self, call: TorchCall, result: Any) -> None:
        """A torch function has returned ``result``."""
        name = getattr(call.func, "__name__", "")
        symbol = _COMPARISONS.get(name)
        if (symbol is None and name not in _ASKS) or self._fault:
            return
        try:
            if symbol is None:
                self._ask(name, call.args[0], result)
            elif isinstance(result, torch.Tensor) and result.numel() == 1:
                self._compared = _Compared(result, symbol, (call.args[0], call.args[1]))
        except Exception as error:  # noqa: BLE001 - the user's forward goes on
            self._fault = f"{type(error).__name__}: {error}"

    def _ask(self, name: str, tensor: torch.Tensor, result: Any) -> None:
        compared, self._compared = self._compared, None
        frame = _asking_frame()
        if frame is None:
            return
        of_number = name in _NUMBERS
        test = self._test(frame, of_number=of_number)
        if test is None:
            return
        if of_number:
            found = _of_number(test, result, frame)
        else:
            mine = compared is not None and compared.result is tensor
            found = _of_truth(tensor, compared if mine else None, result)
        if found is not None:
            self._note(frame, test, tensor, found)

    def _note(self, frame: FrameType, test: Test, tensor: torch.Tensor, found: _Found) -> None:
        place = (frame.f_code.co_filename, test.line, frame.f_code.co_name)
        module = self._module()
        key = (place, test.text, found.taken, module)
        self._times[key] += 1
        if self._shown[key] >= MOST_EACH or self._shown.total() >= MOST:
            return
        self._shown[key] += 1
        with torch_private.without_functions(), torch_private.without_dispatch():
            left, right = map(_number, (*found.sides, None, None)[:2])
        self._asked.append(
            Asked(
                place=place,
                condition=test.text,
                symbol=found.symbol,
                numbers=(left, right),
                taken=found.taken,
                module=module,
                forward=-1 if module is None else self._forward,
                at=torch_private.current_sequence(),
                near=self._near(tensor, found.sides),
            )
        )

    def _test(self, frame: FrameType, *, of_number: bool) -> Test | None:
        key = (frame.f_code, frame.f_lasti, of_number)
        if key not in self._tests:
            self._tests[key] = asked_of_number(frame) if of_number else asked(frame)
        return self._tests[key]

    def _near(self, tensor: torch.Tensor, sides: tuple[Any, ...]) -> tuple[int, ...]:
        """Numbers of the nodes behind what was tested, latest first."""
        tensors = [one for one in (tensor, *sides) if isinstance(one, torch.Tensor)]
        nodes = [one.grad_fn or self._maker(one) for one in tensors]
        return _latest_first([node for node in nodes if node is not None])


class _Found(NamedTuple):
    taken: bool
    symbol: str
    sides: tuple[Any, ...]
    """What was compared, or the one value that was tested: numbers, or tensors still to read."""


def _of_truth(tensor: torch.Tensor, compared: _Compared | None, result: Any) -> _Found | None:
    if not isinstance(result, bool):
        return None
    if compared is not None:
        return _Found(result, compared.symbol, compared.sides)
    return _Found(result, "", () if tensor.dtype is torch.bool else (tensor,))


def _of_number(test: Test, number: Any, frame: FrameType) -> _Found | None:
    if not isinstance(number, (bool, int, float)):
        return None
    if test.other is None:
        return _Found(bool(number), "", (number,))
    other = value_of(test.other, frame)
    if other is None:
        return None
    sides = (number, other) if test.is_left else (other, number)
    return _Found(COMPARE[test.symbol](*sides), test.symbol, sides)


def _number(side: Any) -> Number | None:
    """A side as a number: of a tensor its one value, which the user's own read made ready."""
    if isinstance(side, (bool, int, float)):
        return side
    if not has_own_storage(side) or side.numel() != 1 or side.is_complex() or side.is_meta:
        return None
    return side.detach().item()


def _asking_frame() -> FrameType | None:
    """The frame that asks, where it is a person's: torch asks tensors for reasons of its own."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - not kept: a cycle
    while frame is not None and (
        frame.f_code.co_filename.startswith(_OURS) or frame.f_code.co_name == "__torch_function__"
    ):
        frame = frame.f_back
    return frame if frame is not None and shows_model_code(frame.f_code.co_filename) else None


_OURS = __file__.rpartition("/graph/")[0]


def _latest_first(starts: list[Node]) -> tuple[int, ...]:
    """Numbers of ``starts`` and of the nodes behind them, latest first; leaves have none."""
    found: list[int] = []
    known: dict[Node, int] = {}
    waiting: list[tuple[int, int, Node]] = []

    def add(node: Node) -> None:
        number = torch_private.node_sequence(node)
        if node not in known and number >= 0:
            known[node] = len(known)
            heapq.heappush(waiting, (-number, known[node], node))

    for node in starts:
        add(node)
    while waiting and len(found) < _NUM_NEAR:
        number, _, node = heapq.heappop(waiting)
        found.append(-number)
        for maker, _ in node.next_functions:
            if maker is not None:
                add(maker)
    return tuple(found)
