"""Stacks of a snapshot, each stored once.

Torch makes one dictionary per distinct frame and one list per recorded stack, so a million events
have a million lists of a few thousand shared dictionaries, and pickling keeps that sharing. A list
is compared with those already seen that have the same few frames at the same places: two lists of
the same objects are equal after one look at each pointer, which costs a tenth of making a key of
all of them. The contents of a frame are read once per distinct frame. Identities are valid only
while their objects exist: a table must not outlive the snapshot that it reads. Standard library
only.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress, repeat
from operator import getitem, itemgetter, ne, rshift, xor
from typing import Any

from workbench.allocator.snapshot.plain import text

NO_STACK = -1
_SAMPLE = 256
_MOST_ALIKE = 8
"""The number of lists compared one after the other before a key of all their frames is cheaper."""


class Stacks:
    """Frames and stacks of one snapshot; rows in the order in which they were first seen."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        """Text -> row, for the two columns that follow."""
        self.frame_file, self.frame_line, self.frame_name = array("i"), array("q"), array("i")
        self.stack_start, self.stack_frame = array("q", [0]), array("i")
        self._frame_by_id: dict[int, int] = {}
        self._frame_by_content: dict[tuple[int, int, int], int] = {}
        self._last: dict[int, list[Any]] = {}
        """Marks of a list (see `_marks`) -> the last list that had them."""
        self._last_row: dict[int, int] = {}
        self._alike: dict[tuple[int, int, int, int], list[tuple[list[Any], int]]] = {}
        """Length and the identities of three frames -> lists that have these."""
        self._row_by_all: dict[tuple[int, ...], int] = {}
        self._row_by_content: dict[tuple[int, ...], int] = {(): NO_STACK}

    def column(self, lists: Sequence[Any]) -> array[int]:
        """Return the row of each stack; `NO_STACK` for what is not a list, or an empty one."""
        if set(map(type, lists)) - {list}:
            lists = [frames if type(frames) is list else [] for frames in lists]
        some = lists[:_SAMPLE]
        if 2 * len(set(map(id, some))) > len(some):
            return self._rows(lists)
        ids = list(map(id, lists))
        once = dict(zip(ids, lists, strict=True))
        row_of = dict(zip(once, self._rows(list(once.values())), strict=True))
        return array("i", map(row_of.__getitem__, ids))

    def string(self, value: Any) -> int:
        """Return the row of a text in `strings`."""
        return self.strings.setdefault(text(value), len(self.strings))

    def _rows(self, lists: Sequence[list[Any]]) -> array[int]:
        """Return the row of each list.

        Nearly every event has a stack that was seen before, so each list is compared with the last
        one that had its marks, in loops that run inside the interpreter. The rest are handled one
        by one.
        """
        if not all(lists):
            some = iter(self._rows(list(filter(None, lists))))
            return array("i", [next(some) if frames else NO_STACK for frames in lists])
        marks = _marks(lists)
        unlike = list(map(ne, map(self._last.get, marks), lists))
        found = array("i", map(self._last_row.get, marks, repeat(NO_STACK)))
        for at in compress(range(len(lists)), unlike):
            found[at] = self._row(lists[at])
            self._last[marks[at]], self._last_row[marks[at]] = lists[at], found[at]
        return found

    def _row(self, frames: list[Any]) -> int:
        """Return the row of one list."""
        length = len(frames)
        few = length, id(frames[0]), id(frames[length >> 2]), id(frames[length >> 1])
        alike = self._alike.setdefault(few, [])
        for known, row in alike:
            if known == frames:
                return row
        if len(alike) < _MOST_ALIKE:
            alike.append((frames, self._new_row(frames)))
            return alike[-1][1]
        every = tuple(map(id, frames))
        row = self._row_by_all.get(every)
        if row is None:
            row = self._row_by_all[every] = self._new_row(frames)
        return row

    def _new_row(self, frames: list[Any]) -> int:
        """Return the row of a list not seen before; another list may have the same contents."""
        rows = tuple(self._frame(frame) for frame in frames if type(frame) is dict)
        row = self._row_by_content.setdefault(rows, len(self.stack_start) - 1)
        if row == len(self.stack_start) - 1:
            self.stack_frame.extend(rows)
            self.stack_start.append(len(self.stack_frame))
        return row

    def _frame(self, frame: dict[str, Any]) -> int:
        row = self._frame_by_id.get(id(frame))
        if row is None:
            line = frame.get("line")
            if type(line) is not int or not 0 <= line < 1 << 31:
                line = 0
            content = self.string(frame.get("filename")), line, self.string(frame.get("name"))
            row = self._frame_by_content.setdefault(content, len(self.frame_line))
            if row == len(self.frame_line):
                self.frame_file.append(content[0])
                self.frame_line.append(content[1])
                self.frame_name.append(content[2])
            self._frame_by_id[id(frame)] = row
        return row


def _marks(lists: Sequence[list[Any]]) -> list[int]:
    """Combine the identities of two frames of each list into a number; no list is empty."""
    quarter = map(getitem, lists, map(rshift, map(len, lists), repeat(2)))
    return list(map(xor, map(id, map(itemgetter(0), lists)), map(id, quarter)))
