"""Chances that a fuzzer decides, so that it learns what each leads to. Needs `atheris`."""

from __future__ import annotations

import random

import atheris


class Choices(random.Random):
    """Chances taken from an input's bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._input = atheris.FuzzedDataProvider(data)

    def random(self) -> float:
        """The next chance; 0 when the input is used up."""
        return self._input.ConsumeProbability() * 0.999_999

    def getrandbits(self, count: int, /) -> int:
        """The next bits; zeros when the input is used up."""
        return self._input.ConsumeUInt((count + 7) // 8) & ((1 << count) - 1)
