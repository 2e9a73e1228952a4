"""Record files that someone else wrote: nothing of their text reaches a terminal as it is."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.unit.records.support import samples
from workbench.panel.open_record import open_record
from workbench.records import Record, RecordError, read_record
from workbench.trust import harmless

HOSTILE = "=1+1\x1b]52;c;cm0gLXJm\x07\x1b[2J\u202e\x00<b>\x9b31m"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is text."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, (list, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from places(one, (*path, key))


def changed(plain: Any, where: list[tuple[Any, ...]]) -> Any:
    found = copy.deepcopy(plain)
    for *above, last in where:
        inside = found
        for key in above:
            inside = inside[key]
        inside[last] = HOSTILE
    return found


class File:
    """A record's bytes, with other text in them."""

    def __init__(self, record: Record) -> None:
        data = record.to_bytes()
        size = int.from_bytes(data[:8], "little")
        self.columns: dict[str, np.ndarray] = load(data)
        self.metadata: dict[str, str] = json.loads(data[8 : 8 + size])["__metadata__"]
        self.plain = json.loads(self.metadata["record"])

    def with_text(self, where: list[tuple[Any, ...]]) -> bytes:
        plain = json.dumps(changed(self.plain, where))
        return save(self.columns, metadata={**self.metadata, "record": plain})

    @property
    def free(self) -> list[tuple[Any, ...]]:
        """Where any text may be; elsewhere it is one of a few."""
        found: list[tuple[Any, ...]] = []
        for place in places(self.plain):
            with suppress(RecordError):
                read_record(self.with_text([place]))
                found.append(place)
        return found


def shown(view: Any) -> Iterator[str]:
    yield str(view)
    yield repr(view)
    bundle = view._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    for kind, text in data.items():
        if isinstance(text, str) and kind.startswith("text/"):
            yield text


@pytest.mark.parametrize("name", samples())
def test_nothing_of_a_file_reaches_a_terminal_a_page_or_a_picture_as_it_is(
    name: str, tmp_path: Path
) -> None:
    file = File(samples()[name])
    where = file.free
    assert where, "no text of it is free, and nothing was looked at"
    record = read_record(file.with_text(where))
    again = json.loads(File(record).metadata["record"])
    assert json.dumps(again, ensure_ascii=False) == harmless(json.dumps(again, ensure_ascii=False))
    path = tmp_path / "it.safetensors"
    path.write_bytes(file.with_text(where))
    if name == "memory_chart":
        return  # a part of a view, and none of its own
    view = open_record(path)
    for text in shown(view):
        assert harmless(text) == text
        assert "<b>" not in text or "html" not in text
    for suffix in (".svg", ".txt", ".html", ".csv"):
        try:
            saved = view.save(tmp_path / f"it{suffix}")
        except (ValueError, RuntimeError):
            continue  # it has no such file
        text = Path(saved).read_text(encoding="utf-8")
        assert harmless(text) == text
        if suffix == ".svg":
            ET.fromstring(text)
        if suffix == ".csv":
            assert not any(cell.startswith("=") for row in csv.reader([text]) for cell in row)


def test_a_refusal_says_nothing_as_it_is(tmp_path: Path) -> None:
    for name, record in samples().items():
        file = File(record)
        refused: list[str] = []
        for place in places(file.plain):
            try:
                read_record(file.with_text([place]))
            except RecordError as error:
                refused.append(str(error))
        assert [text for text in refused if harmless(text) != text] == [], name
    path = tmp_path / "\x1b[2J.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(RecordError) as error:
        open_record(path)
    assert harmless(str(error.value)) == str(error.value)
