"""What a data set keeps from sample to sample: seen, put back, and given to a copy of it."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import random
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from workbench.experiment.data.dataset_state import DataState, data_state_of
from workbench.experiment.state.value_snapshots import MOST_BYTES, MOST_ELEMENTS


class Harder:
    """A transform that counts."""

    def __init__(self) -> None:
        self.level = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.level += 0.5
        return x * self.level


class Data(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = torch.randn(5000, 4)
        self.names = [f"row {at}" for at in range(100)]
        self.transforms = [Harder(), torch.nn.Identity()]
        self.calls, self.cache = 0, {}
        self.counts, self.seen = np.zeros(3), torch.zeros(3)
        self.order: list[Any] = []
        self.file: Any = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, row: int) -> Any:
        return self.transforms[0](self.rows[row]), row


def calls(data: Any) -> None:
    data.calls += 1


def caches(data: Any) -> None:
    data.cache[3] = torch.ones(2)


def transforms(data: Any) -> None:
    data[0]


def array(data: Any) -> None:
    data.counts[1] += 1


def tensor(data: Any) -> None:
    data.seen[1] += 1


def appends(data: Any) -> None:
    data.order.append((1, "a"))


def makes(data: Any) -> None:
    data.made = {"a": 1}


def takes_away(data: Any) -> None:
    del data.calls


CHANGES: list[Callable[[Any], None]] = [
    calls, caches, transforms, array, tensor, appends, makes, takes_away,
]  # fmt: skip


def plain(data: Any) -> str:
    """All of it, to be compared."""
    kept = {name: value for name, value in vars(data).items() if name != "rows"}
    kept["transforms"] = [vars(one) for one in data.transforms[:1]]
    return repr(sorted(kept.items()))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_undone_and_given_to_a_copy(change: Callable[[Any], None]) -> None:
    data: Any = Data()
    there = copy.deepcopy(data)
    before, kept = plain(data), DataState(data)
    mark, state = kept.mark(), kept.get_state()
    change(data)
    after = plain(data)
    assert after != before
    assert kept.mark() != mark
    assert kept.changed()
    changed = pickle.loads(pickle.dumps(kept.get_state()))
    kept.set_state(state)
    assert plain(data) == before
    assert kept.mark() == mark
    kept.set_state(changed)
    assert plain(data) == after
    at_home = DataState(there)
    containers = there.cache, there.order
    at_home.set_state(changed)
    assert plain(there) == after
    assert at_home.mark() != mark
    assert (there.cache, there.order) == containers
    assert there.cache is containers[0]


def test_what_is_opened_is_no_state() -> None:
    data: Any = Data()
    kept = DataState(data)
    data.file = object()
    assert not kept.changed()


def test_data_sets_of_others_are_looked_through() -> None:
    inner = Data()
    data = ConcatDataset([Subset(inner, [0, 1]), Data()])
    kept = data_state_of(DataLoader(data))
    assert kept is not None
    inner.calls += 1
    assert [name.rpartition(".")[2] for name in kept.changed()] == ["calls"]


def test_data_sets_without_an_object_of_a_persons_keep_nothing() -> None:
    tensors = torch.utils.data.TensorDataset(torch.zeros(3))
    assert data_state_of(DataLoader(tensors)) is None


def test_of_a_large_container_the_length_is_known() -> None:
    data: Any = Data()
    data.cache = dict.fromkeys(range(MOST_ELEMENTS), 0)
    kept = DataState(data)
    mark = kept.mark()
    data.cache[-1] = 0
    assert kept.mark() != mark
    kept.set_state(kept.get_state())
    assert len(data.cache) == MOST_ELEMENTS + 1


class Level(Enum):
    EASY = 0
    HARD = 1


class Kept(Dataset[Any]):
    """A data set with one attribute that a sample changes."""

    def __init__(self, value: Any) -> None:
        self.rows = torch.arange(40.0).reshape(10, 4)
        self.kept = value

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> Any:
        return self.rows[row], row


def sets(value: Any) -> Callable[[Any], None]:
    return lambda data: setattr(data, "kept", value)


def grows(data: Any) -> None:
    data.kept = torch.cat([data.kept, torch.zeros(MOST_BYTES)])


TO_THE_UNKNOWN: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "a tensor that grows": (torch.ones(3), grows),
    "a list of others": ([1], lambda data: data.kept.append(object())),
    "too many": ([1], lambda data: data.kept.extend(range(MOST_ELEMENTS))),
    "a file": (3, sets(object())),
    "a list in itself": ([1], lambda data: data.kept.append(data.kept)),
    "a class of one's own": ({"a": 1}, lambda data: data.kept.update(b=Harder())),
}
KNOWN: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "a number from None": (None, sets(3)),
    "None from a number": (3, sets(None)),
    "a list in a dictionary": ({}, lambda data: data.kept.update(k=[1])),
    "a default": (defaultdict(list), lambda data: data.kept["k"].append(1)),
    "a default in one": ({"a": defaultdict(int)}, lambda data: data.kept["a"].update(b=1)),
    "500 counters": ([0] * 500, lambda data: data.kept.__setitem__(400, 1)),
    "pairs": ([(0, 1)] * 5, lambda data: data.kept.__setitem__(4, (0, 2))),
    "tensors": ([torch.zeros(2) for _ in range(5)], lambda data: data.kept[3].add_(1)),
    "tensors of lengths": ([torch.zeros(n) for n in range(5)], lambda data: data.kept[3].add_(1)),
    "tensors of dtypes": (
        [torch.zeros(2), torch.zeros(2, 2, dtype=torch.bfloat16)],
        lambda data: data.kept[1].add_(1),
    ),
    "arrays": ({"a": np.zeros(3)}, lambda data: data.kept["a"].fill(1)),
    "a table": ([[0, 0], [0, 0]], lambda data: data.kept[1].__setitem__(0, 1)),
    "lists in a pair": (([0], [1]), lambda data: data.kept[1].append(2)),
    "keys": ({1: 0}, lambda data: (data.kept.clear(), data.kept.update({2: 0}))[0]),
    "keys of pairs": ({(1, "a"): 0}, lambda data: data.kept.update({(2, "a"): 0})),
    "an order of keys": ({1: 0, 2: 0}, lambda data: data.kept.update({1: data.kept.pop(1)})),
    "a queue": (deque([1, 2], maxlen=2), lambda data: data.kept.append(3)),
    "a set": ({"a", "b"}, lambda data: data.kept.add("c")),
    "a pair": ((0, 0), sets((0, 1))),
    "a number of NumPy": (np.int64(1), sets(np.int64(2))),
    "another dtype": (torch.zeros(2), sets(torch.zeros(2, dtype=torch.int32))),
    "a choice": (Level.EASY, sets(Level.HARD)),
    "a path": (Path("a"), sets(Path("b"))),
}


def spelled(value: Any) -> str:
    """All of it, and what makes more of it."""
    rest = getattr(value, "default_factory", None), getattr(value, "maxlen", None)
    return f"{type(value)} {sorted(value) if isinstance(value, set) else value} {rest}"


@pytest.mark.parametrize("name", KNOWN | TO_THE_UNKNOWN)
def test_what_a_sample_makes_of_a_value_is_seen_and_undone(name: str) -> None:
    value, change = copy.deepcopy((KNOWN | TO_THE_UNKNOWN)[name])
    data: Any = Kept(value)
    kept, before = DataState(data), spelled(value)
    mark, state = kept.mark(), kept.get_state()
    for _ in range(2):
        change(data)
        after, here = spelled(data.kept), data.kept
        assert after != before
        assert kept.mark() != mark
        assert kept.changed()[0] == "Kept.kept"
        changed = kept.get_state()
        kept.set_state(state)
        assert spelled(data.kept) == before
        assert data.kept is value, "whoever has it sees it"
        assert kept.mark() == mark
        kept.set_state(changed)
        if name not in ("a file", "too many"):
            assert spelled(data.kept) == after
            assert data.kept is here
        kept.set_state(state)


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_sample_makes_of_a_value_comes_back(name: str) -> None:
    value, change = copy.deepcopy(KNOWN[name])
    there: Any = Kept(value)
    here: Any = copy.deepcopy(there)
    at_home, kept, now = DataState(here), DataState(there), here.kept
    change(there)
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert spelled(here.kept) == spelled(there.kept)
    assert at_home.mark() == kept.mark()
    if there.kept is value:
        assert here.kept is now, "the very one that was there"


@pytest.mark.parametrize("name", TO_THE_UNKNOWN)
def test_what_is_no_longer_known_stays_as_it_is_locally(name: str) -> None:
    value, change = copy.deepcopy(TO_THE_UNKNOWN[name])
    there: Any = Kept(value)
    here: Any = copy.deepcopy(there)
    at_home, kept, before = DataState(here), DataState(there), spelled(value)
    change(there)
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert spelled(here.kept) == before
    after = spelled(there.kept)
    kept.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert spelled(there.kept) == after


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "NumPy's": (lambda: np.random.default_rng(0), lambda one: one.random()),
    "NumPy's, of other bits": (
        lambda: np.random.Generator(np.random.SFC64(1)), lambda one: one.random()
    ),
    "NumPy's of old": (lambda: np.random.RandomState(0), lambda one: one.normal()),
    "bits": (lambda: np.random.Philox(0), lambda one: int(one.random_raw())),
    "Python's": (lambda: random.Random(0), lambda one: one.gauss(0, 1)),
    "torch's": (
        lambda: torch.Generator().manual_seed(3), lambda one: float(torch.rand((), generator=one))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATORS)
def test_a_draw_is_seen_undone_and_comes_back(name: str) -> None:
    make, draw = GENERATORS[name]
    there: Any = Kept(make())
    here: Any = Kept(make())
    at_home, kept, now = DataState(here), DataState(there), here.kept
    mark, state, first = kept.mark(), kept.get_state(), draw(there.kept)
    assert kept.mark() != mark
    assert kept.changed() == [], "it is no other data set for that"
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert here.kept is now
    assert draw(here.kept) == draw(there.kept)
    kept.set_state(state)
    assert kept.mark() == mark
    assert draw(there.kept) == first


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("is_named", [True, False])
def test_one_that_a_sample_makes_is_unmade_and_comes_back(name: str, *, is_named: bool) -> None:
    make, draw = GENERATORS[name]
    there: Any = Kept(None)
    here: Any = Kept(None)
    if is_named:
        there.late = here.late = None
    at_home, kept = DataState(here), DataState(there)
    mark, state = kept.mark(), kept.get_state()
    there.late, there.kept = make(), [make()]
    draw(there.late)
    assert kept.mark() != mark
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert type(here.late) is type(there.late)
    assert draw(here.late) == draw(there.late)
    assert draw(here.kept[0]) == draw(there.kept[0])
    kept.set_state(state)
    assert kept.mark() == mark
    assert (there.late if is_named else vars(there).get("late")) is None
    assert hasattr(there, "late") == is_named


class Own(random.Random):
    """Somebody's own kind of generator."""


def test_generators_that_cannot_be_made_or_all_draw_from_are_left_alone() -> None:
    there: Any = Kept(None)
    here: Any = Kept(None)
    at_home, kept = DataState(here), DataState(there)
    there.kept = Own(1)
    assert at_home.set_state(pickle.loads(pickle.dumps(kept.get_state()))) == ["Kept.kept"]
    for one in (torch.default_generator, random.SystemRandom()):
        there.kept = one
        kept, before = DataState(there), torch.get_rng_state()
        state = kept.get_state()
        torch.rand(())
        drawn = torch.get_rng_state()
        kept.set_state(state)
        assert torch.equal(torch.get_rng_state(), drawn)
        assert not torch.equal(drawn, before)


def test_containers_that_ranks_make_keep_what_makes_more_of_them() -> None:
    there, here = Kept(None), Kept(None)
    at_home, kept = DataState(here), DataState(there)
    there.kept = {"a": defaultdict(list), "b": deque([1, 2], maxlen=2)}
    there.late = defaultdict(lambda: 0)  # type: ignore[attr-defined]
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    here.kept["a"]["k"].append(1)
    here.kept["b"].append(3)
    assert here.kept == {"a": {"k": [1]}, "b": deque([2, 3])}
    assert not hasattr(here, "late"), "nobody there finds the function that it is made with"
    there.kept["a"]["k"].append(1)
    at_home.set_state(pickle.loads(pickle.dumps(kept.get_state())))
    assert here.kept["a"]["k"] == [1]


def test_what_is_opened_later_stays_open() -> None:
    data: Any = Kept(None)
    kept = DataState(data)
    mark, state = kept.mark(), kept.get_state()
    data.kept = data.other = file = object()
    assert kept.mark() == mark
    kept.set_state(state)
    kept.set_state(pickle.loads(pickle.dumps(state)))
    assert data.kept is data.other is file


def test_what_another_holds_is_not_written() -> None:
    data: Any = Kept(None)
    data.table = [[at] * 3 for at in range(3)]
    data.kept, data.row = data.table[0], data.rows[0]
    there = copy.deepcopy(data)
    kept, at_there = DataState(data), DataState(there)
    state = kept.get_state()
    table, rows = copy.deepcopy((data.table, data.rows))
    for one in data, there:
        one.kept, one.row = one.table[2], one.rows[2]
    changed = pickle.loads(pickle.dumps(at_there.get_state()))
    kept.set_state(state)
    assert data.kept is data.table[0]
    assert (data.table, data.rows.tolist()) == (table, rows.tolist())
    kept.set_state(changed)
    assert (data.table, data.rows.tolist()) == (table, rows.tolist())
    assert (data.kept, data.row.tolist()) == (table[2], rows[2].tolist())


def test_objects_of_ones_own_are_put_back_whole() -> None:
    data: Any = Kept([Harder(), Harder()])
    data.last = Harder()
    first, second = data.kept
    last, kept = data.last, DataState(data)
    mark, state = kept.mark(), kept.get_state()
    data.kept.reverse()
    data.kept.append(Harder())
    first.level, second.level = 1.0, 2.0
    data.last = new = Harder()
    new.level = 3.0
    assert kept.mark() != mark
    kept.set_state(state)
    assert data.kept[0] is first
    assert data.kept[1] is second
    assert data.last is last
    assert (len(data.kept), first.level, second.level, last.level) == (2, 0.0, 0.0, 0.0)
    assert new.level == 3.0
    kept.set_state({})  # from another process, which knows of no change
    assert new.level == 3.0


class Slotted:
    __slots__ = ("inside",)

    def __init__(self) -> None:
        self.inside = Harder()


def test_objects_without_a_dictionary_are_looked_through() -> None:
    data: Any = Kept(Slotted())
    kept = DataState(data)
    mark, state = kept.mark(), kept.get_state()
    data.kept.inside.level = 1.0
    assert kept.mark() != mark
    kept.set_state(state)
    assert data.kept.inside.level == 0.0


def test_of_large_ones_and_of_those_of_others_the_length_is_seen() -> None:
    for value in ([object()], [0] * MOST_ELEMENTS, [torch.zeros(MOST_BYTES)]):
        data: Any = Kept(value)
        kept, before = DataState(data), list(value)
        mark, state = kept.mark(), kept.get_state()
        value.append(object())
        assert kept.mark() != mark
        kept.set_state(state)
        assert data.kept is value
        assert all(one is other for one, other in zip(value, before, strict=True))


def test_a_mark_is_the_same_in_any_process() -> None:
    code = (
        "import sys, hashlib; from tests.unit.experiment.data import test_dataset_state as tests;"
        "print(hashlib.sha256(tests.in_any_process()).hexdigest())"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert there.strip() == hashlib.sha256(in_any_process()).hexdigest()


def in_any_process() -> bytes:
    words = {f"word {at}" for at in range(50)}
    data: Any = Kept([words, frozenset(words), {(1, frozenset(words)), (2, frozenset())}])
    data.objects = {Harder(): Harder()}
    data.of_all = {one: one for one in (Harder(), "a", Level.EASY)}
    data.torchs = {"a": [torch.ones(2), torch.ones(2, dtype=torch.bfloat16)], None: Level.HARD}
    for name, (value, _) in (KNOWN | TO_THE_UNKNOWN).items():
        setattr(data, name, value)
    return DataState(data).mark()


@pytest.mark.filterwarnings("ignore")  # torch's, of kinds of tensors that may yet change
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.zeros(3).to_sparse(),
        lambda: torch.zeros(3, device="meta"),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
        lambda: np.array([object()]),
    ],
)
def test_what_has_no_values_to_be_looked_at_is_not_known(made: Callable[[], Any]) -> None:
    value = made()
    for kept in (value, [value], [value, value], {"a": (value, torch.zeros(2))}):
        data: Any = Kept(kept)
        before = DataState(data)
        state = before.get_state()
        assert before.mark() == DataState(data).mark()
        data.kept = None
        before.set_state(state)
        assert data.kept is kept


class Counting(list[Any]):
    """Counts how often somebody goes through it, and gives other things than it holds."""

    asked = 0

    def __iter__(self) -> Any:
        self.asked += 1
        return iter(["other"])

    def __len__(self) -> int:
        self.asked += 1
        return 1


class Loading(OrderedDict[str, Any]):
    """Loads what it is asked for."""

    loads = 0

    def __getitem__(self, key: str) -> Any:
        self.loads += 1
        return super().__getitem__(key)

    def __iter__(self) -> Any:
        self.loads += 1
        return super().__iter__()

    def items(self) -> Any:
        self.loads += 1
        return super().items()

    def values(self) -> Any:
        self.loads += 1
        return super().values()


@pytest.mark.parametrize(
    ("value", "own", "change"),
    [
        (Counting([1, 2]), list, lambda one: list.append(one, 3)),
        (Loading(b=[1], a=2), OrderedDict, lambda one: OrderedDict.update(one, c=3)),
    ],
)
def test_containers_with_methods_of_their_own_are_not_called(
    value: Any, own: Any, change: Callable[[Any], None]
) -> None:
    data: Any = Kept(value)
    kept = DataState(data)
    state, mark = kept.get_state(), kept.mark()
    before = [*own.__iter__(value)]
    attributes = dict(vars(value))
    change(value)
    vars(value).update(attributes)  # one's own test may ask
    assert kept.mark() != mark
    kept.set_state(state)
    assert kept.mark() == mark
    assert [*own.__iter__(value)] == before
    assert vars(value) == attributes


def test_a_change_is_seen_where_the_same_elements_were_expected() -> None:
    """What never changes is known again by its elements, and not encoded again."""
    pair = ("a", 1000)
    data: Any = Kept([pair, ("b", 2000)])
    data.index = {"a": 1000, "b": 2000}
    kept = DataState(data)
    mark = kept.mark()
    assert kept.mark() == mark
    changes: list[Callable[[], object]] = [
        lambda: data.kept.__setitem__(1, ("b", 2001)),
        data.kept.reverse,
        lambda: data.kept.append(pair),
        data.kept.pop,
        lambda: data.index.update(a=1001),
        lambda: data.index.update(a=data.index.pop("a")),
        lambda: data.kept.__setitem__(0, [1]),
        lambda: data.kept[0].append(2),
        lambda: data.kept[0].append(3),
    ]
    for change in changes:
        change()
        assert kept.mark() != mark
        mark = kept.mark()
        assert mark == DataState(data).mark(), "as seen for the first time"


def test_all_attributes_share_what_is_looked_at() -> None:
    data: Any = Kept(None)
    for number in range(4):
        setattr(data, f"part{number}", [(at, number) for at in range(MOST_ELEMENTS - 1)])
    kept = DataState(data)
    mark = kept.mark()
    assert mark == kept.mark() == DataState(data).mark(), "known again costs the same"
    data.part0[5] = (0, 0)
    assert kept.mark() != mark, "the first ones are looked at whole"
    mark = kept.mark()
    data.part3[5] = (0, 0)
    assert kept.mark() == mark, "the length of the last ones"
    data.part3.append((0, 0))
    assert kept.mark() != mark
