"""Coverage-guided fuzzing of the reader of record files: ``python -m ... -runs=100000``.

Needs `atheris`, which is no dependency. Arguments are libFuzzer's. Of an input's bytes the first
says which kind of record is damaged, the second how (`tests.properties.hostile_records`), the
others where.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["workbench.records"]):
    from tests.properties.atheris_choices import Choices
    from tests.properties.hostile_records import DAMAGES, Whole, verdict
    from tests.unit.records.support import samples

WHOLE = [Whole(record) for record in samples().values()]
WAYS = list(DAMAGES.values())


def one_input(data: bytes) -> None:
    """Read what the bytes stand for; anything but a record or a sentence is a finding."""
    kind, way, rest = data[:1] or b"\0", data[1:2] or b"\0", data[2:]
    verdict(WAYS[way[0] % len(WAYS)](WHOLE[kind[0] % len(WHOLE)], Choices(rest)))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
