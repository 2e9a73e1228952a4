"""Rates of a module of the user's own that keep something from call to call."""

from __future__ import annotations

num_calls = 0
seen: list[int] = []
table = {"calls": 0}


class Held:
    calls = 0


def by_global(_at: int) -> float:
    global num_calls  # noqa: PLW0603 - what users write
    num_calls += 1
    return 0.9**num_calls


def by_list(at: int) -> float:
    seen.append(at)
    return 0.9 ** len(seen)


def by_dict(_at: int) -> float:
    table["calls"] += 1
    return 0.9 ** table["calls"]


def by_class(_at: int) -> float:
    Held.calls += 1
    return 0.9**Held.calls


def by_a_function(at: int) -> float:
    return by_global(at)


def reset() -> None:
    global num_calls  # noqa: PLW0603 - as above
    num_calls = table["calls"] = Held.calls = 0
    seen.clear()


def state() -> tuple[int, ...]:
    return num_calls, len(seen), table["calls"], Held.calls
