"""Coverage-guided fuzzing of what happens to a snapshot in Python: ``python -m ... -runs=100000``.

Needs `atheris`, which is no dependency. Arguments are libFuzzer's. Of an input's bytes the first
says which border they cross: a reader's answer that is not to be believed, or the choices that
damage the values of a snapshot, which is read, or read, replayed and made a record of. Opcodes are
not tried here: they are read by C, in another process.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["workbench.allocator", "workbench.memory"]):
    from tests.properties.atheris_choices import Choices
    from tests.properties.hostile_snapshots import check_shown, check_whole, damaged_values
    from tests.unit.allocator.made import made_snapshot
    from workbench.allocator.snapshot import decode
    from workbench.allocator.snapshot.columns import columns_of
    from workbench.allocator.snapshot.plain import RefusedError
    from workbench.allocator.snapshot.snapshot import Snapshot
    from workbench.allocator.snapshot.unpickle import write
    from workbench.records import RecordError

SMALL = made_snapshot(60, per_step=12)


def one_input(data: bytes) -> None:
    """Read what the bytes stand for; anything but a snapshot or a sentence is a finding."""
    border, rest = (data[0] % 4 if data else 0), data[1:]
    if border < 2:
        answered(rest)
    else:
        valued(rest, check_whole if border == 2 else check_shown)


def answered(data: bytes) -> None:
    """A reader's answer: bytes changed at places the input names."""
    found = bytearray(ANSWER)
    for at in range(0, len(data) - 4, 5):
        place = int.from_bytes(data[at : at + 4], "little") % len(found)
        found[place] = data[at + 4]
    try:
        check_whole(decode._parse(io.BytesIO(found), len(found)))
    except RefusedError:
        return


def valued(data: bytes, check: Callable[[Snapshot], None]) -> None:
    """A snapshot with other values."""
    try:
        check(decode.of_live(damaged_values(SMALL, Choices(data))))
    except RecordError as error:
        if "its reader returned" in str(error):
            raise AssertionError(str(error)) from error


def _answer() -> bytes:
    out = io.BytesIO()
    write(columns_of(SMALL), out)
    return out.getvalue()


ANSWER = _answer()

if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
