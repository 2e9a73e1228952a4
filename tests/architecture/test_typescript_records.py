"""The browser's twins of the records are in step with the dataclasses, byte for byte."""

from __future__ import annotations

import pytest

from tests.unit.records.support import FIXTURES, samples
from tests.unit.records.test_base import assert_same_record
from workbench.records import Record, read_record
from workbench.records.base import columns
from workbench.records.typescript import TARGET, generate, record_classes

AGAIN = "run `python -m workbench.records.typescript` and commit the files"


def test_the_generated_types_are_those_of_the_dataclasses() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in TARGET.iterdir()}
    assert found == generate(), AGAIN


def test_every_packed_record_has_a_sample_for_the_browser_to_read() -> None:
    packed = {cls for cls in record_classes() if issubclass(cls, Record)}
    assert packed == {type(record) for record in samples().values()}
    assert all(columns(cls) for cls in packed)


@pytest.mark.parametrize("name", samples())
def test_the_samples_the_browser_reads_are_current(name: str) -> None:
    found = read_record((FIXTURES / f"{name}.safetensors").read_bytes())
    assert_same_record(samples()[name], found)
