"""Common subsequence of two sequences.

The longest common subsequence is found, where that is cheap, by the greedy algorithm of Myers ("An
O(ND) Difference Algorithm and Its Variations", 1986), whose cost grows with the number of
differences and not with the length. Equal ends are cut off first, so for a loop that ran longer the
first iterations match and the last ones are left over. Sequences that have little in common are
split at the entries that occur once in each (as in "patience" diff), and what is still too large
after that is matched occurrence by occurrence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence

MOST_DIFFERENCES = 400
"""Number of differences at which Myers's algorithm, quadratic in this number, is abandoned."""

Pair = tuple[int, int]


def common_subsequence(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    """Index pairs ``(i, j)`` with ``a[i] == b[j]``, strictly ascending in both."""
    found: list[Pair] = []
    pending = [(0, len(a), 0, len(b))]
    while pending:
        a0, a1, b0, b1 = pending.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            found.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            found.append((a1, b1))
        if a0 == a1 or b0 == b1:
            continue
        left, right = a[a0:a1], b[b0:b1]
        middle = _myers(left, right)
        if middle is None:
            middle = increasing(_unique_in_both(left, right))
            if middle:
                pending += _gaps(middle, (a0, a1, b0, b1))
            else:
                middle = increasing(_by_occurrence(left, right))
        found += [(a0 + i, b0 + j) for i, j in middle]
    return sorted(found)


def increasing(pairs: Iterable[Pair]) -> list[Pair]:
    """The longest part of ``pairs`` that is strictly ascending in both; no index occurs twice."""
    ordered = sorted(pairs)
    tails: list[int] = []
    at_tail: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(ordered):
        length = bisect_left(tails, j)
        before.append(at_tail[length - 1] if length else -1)
        tails[length : length + 1] = [j]
        at_tail[length : length + 1] = [number]
    found: list[Pair] = []
    number = at_tail[-1] if at_tail else -1
    while number >= 0:
        found.append(ordered[number])
        number = before[number]
    return found[::-1]


def _myers(a: Sequence[int], b: Sequence[int]) -> list[Pair] | None:
    """A longest common subsequence; None if it has too many differences."""
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for differences in range(min(len(a) + len(b), MOST_DIFFERENCES) + 1):
        history.append(furthest)
        now: dict[int, int] = {}
        for diagonal in range(-differences, differences + 1, 2):
            x = _step(furthest, diagonal, differences)
            while x < len(a) and x - diagonal < len(b) and a[x] == b[x - diagonal]:
                x += 1
            now[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return _trace_back(history, len(a), len(b))
        furthest = now
    return None


def _step(furthest: dict[int, int], diagonal: int, differences: int) -> int:
    """Start of the run of matches of the best path to ``diagonal`` with one more difference."""
    if differences == 0:
        return 0
    skips_b = furthest.get(diagonal + 1, -1)
    skips_a = furthest.get(diagonal - 1, -2) + 1
    return max(skips_b, skips_a)


def _trace_back(history: list[dict[int, int]], x: int, y: int) -> list[Pair]:
    found: list[Pair] = []
    for differences in range(len(history) - 1, -1, -1):
        furthest = history[differences]
        diagonal = x - y
        start = _step(furthest, diagonal, differences)
        while x > start:
            x, y = x - 1, y - 1
            found.append((x, y))
        if differences and furthest.get(diagonal + 1, -1) == start:
            y -= 1
        else:
            x -= 1
    return found[::-1]


def _unique_in_both(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    count_a, count_b = Counter(a), Counter(b)
    place = {token: j for j, token in enumerate(b) if count_b[token] == 1}
    return [
        (i, place[token]) for i, token in enumerate(a) if count_a[token] == 1 and token in place
    ]


def _by_occurrence(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    places: dict[int, deque[int]] = defaultdict(deque)
    for j, token in enumerate(b):
        places[token].append(j)
    return [(i, places[token].popleft()) for i, token in enumerate(a) if places[token]]


def _gaps(pairs: Sequence[Pair], bounds: tuple[int, int, int, int]) -> list[tuple[int, ...]]:
    a0, a1, b0, b1 = bounds
    inner = [(a0 + i, b0 + j) for i, j in pairs]
    starts = [(a0, b0), *((i + 1, j + 1) for i, j in inner)]
    ends = [*inner, (a1, b1)]
    return [
        (i0, i1, j0, j1)
        for (i0, j0), (i1, j1) in zip(starts, ends, strict=True)
        if i0 < i1 and j0 < j1
    ]
