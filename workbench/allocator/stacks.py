"""Stacks of a snapshot, each kept once.

Torch makes one dictionary per distinct frame and one list per recorded stack, so a million events
carry a million lists of a few thousand shared dictionaries, and pickling keeps that sharing. A
stack is therefore looked up three times, the cheapest key first: by the list itself, by the
identities of its frames, and by what the frames say. Only the last looks inside, once per distinct
stack. An identity is only worth something while its object lives: a table must not outlive the
snapshot it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from workbench.allocator.plain import text

NO_STACK = -1


class Stacks:
    """Frames and stacks of one snapshot; rows in the order in which they were first met."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        """Text -> row, for the two columns that follow."""
        self.frame_file, self.frame_line, self.frame_name = array("i"), array("q"), array("i")
        self.stack_start, self.stack_frame = array("q", [0]), array("i")
        self._frame_by_id: dict[int, int] = {}
        self._frame_by_content: dict[tuple[int, int, int], int] = {}
        self._stack_by_ids: dict[tuple[int, ...], int] = {(): NO_STACK}
        self._stack_by_rows: dict[tuple[int, ...], int] = {(): NO_STACK}

    def column(self, lists: Sequence[Any]) -> array[int]:
        """The row of each stack; `NO_STACK` for what is no list, or an empty one."""
        ids = list(map(id, lists))
        row_of = {
            key: self._row(frames) for key, frames in dict(zip(ids, lists, strict=True)).items()
        }
        return array("i", map(row_of.__getitem__, ids))

    def string(self, value: Any) -> int:
        """The row of a text in `strings`."""
        return self.strings.setdefault(text(value), len(self.strings))

    def _row(self, frames: Any) -> int:
        if type(frames) is not list:
            return NO_STACK
        ids = tuple(map(id, frames))
        row = self._stack_by_ids.get(ids)
        if row is None:
            rows = tuple(self._frame(frame) for frame in frames if type(frame) is dict)
            row = self._stack_by_rows.get(rows)
            if row is None:
                row = self._stack_by_rows[rows] = len(self.stack_start) - 1
                self.stack_frame.extend(rows)
                self.stack_start.append(len(self.stack_frame))
            self._stack_by_ids[ids] = row
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
