"""What is written once for the kernel and once for the page says the same in both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.panel.channel import channel, thinning

KERNEL = Path(__file__).resolve().parents[2] / "extensions/views/src/kernel"


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("model.ts", "PROTOCOL", channel.PROTOCOL),
        ("average.ts", "WEIGHT", thinning.WEIGHT),
        ("thin.ts", "KEPT", thinning._KEPT),
    ],
)
def test_constants_are_the_same(file: str, name: str, value: float) -> None:
    found = re.search(rf"const {name} = ([\d.]+);", (KERNEL / file).read_text())
    assert found is not None
    assert float(found[1]) == value
