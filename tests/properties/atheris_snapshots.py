"""Coverage-guided fuzzing of what happens to a snapshot in Python: ``python -m ... -runs=100000``.

Needs `atheris`, which is no dependency. Arguments are libFuzzer's. Of an input's bytes the first
says which border they cross: a reader's answer that is not to be believed, or the choices that
damage the values of a snapshot. Opcodes are not tried here: they are read by C, in another process.
"""

from __future__ import annotations

import io
import random
import sys

import atheris

with atheris.instrument_imports(include=["workbench.allocator"]):
    from tests.properties.hostile_snapshots import check_whole, damaged_values
    from tests.unit.allocator.made import made_snapshot
    from workbench.allocator import decode
    from workbench.allocator.columns import columns_of
    from workbench.allocator.plain import RefusedError
    from workbench.allocator.unpickle import write
    from workbench.records import RecordError

SMALL = made_snapshot(60, per_step=12)


class Choices(random.Random):
    """Chances taken from an input's bytes, so that the fuzzer learns what each leads to."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._input = atheris.FuzzedDataProvider(data)

    def random(self) -> float:
        """The next chance; 0 when the input is used up."""
        return self._input.ConsumeProbability() * 0.999_999

    def getrandbits(self, count: int, /) -> int:
        """The next bits; zeros when the input is used up."""
        return self._input.ConsumeUInt((count + 7) // 8) & ((1 << count) - 1)


def one_input(data: bytes) -> None:
    """Read what the bytes stand for; anything but a snapshot or a sentence is a finding."""
    if data[:1] < b"\x80":
        answered(data[1:])
    else:
        valued(data[1:])


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


def valued(data: bytes) -> None:
    """A snapshot with other values."""
    try:
        check_whole(decode.of_live(damaged_values(SMALL, Choices(data))))
    except RecordError as error:
        if "its reader gave" in str(error):
            raise AssertionError(str(error)) from error


def _answer() -> bytes:
    out = io.BytesIO()
    write(columns_of(SMALL), out)
    return out.getvalue()


ANSWER = _answer()

if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
