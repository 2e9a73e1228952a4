"""Figures in print are those of the browser: `number_format.py` against `format.ts`."""

import itertools
import json
import random
import shutil
import subprocess

import pytest

from workbench.graph.core.number_format import byte_size, duration, fixed

_BYTES = """
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const write = (bytes) => {
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
};
const read = require('fs').readFileSync(0, 'utf8');
console.log(JSON.stringify(JSON.parse(read).map(write)));
"""


def sizes():
    """Every size to 4 KiB, every half of a last digit near the steps, and others of all sizes."""
    chance = random.Random(0)
    halves = [round(k * 1024**unit * 1024 / 20) for unit in (0, 1, 2) for k in range(1, 2300)]
    odd = [k * 1024**unit + 1024**unit // 2 for unit in (1, 2, 3) for k in range(95, 1024, 7)]
    return [*range(4096), *halves, *odd, *(chance.randrange(2 ** (k % 45 + 1)) for k in range(900))]


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the browser's rule")
def test_bytes_are_written_as_the_browser_does():
    given = sizes()
    ran = subprocess.run(
        ["node", "-e", _BYTES], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    differ = [
        (size, byte_size(size), theirs)
        for size, theirs in zip(given, json.loads(ran.stdout), strict=True)
        if byte_size(size) != theirs
    ]
    assert not differ, differ[:5]


@pytest.mark.parametrize(
    ("size", "written"),
    [
        (256.5 * 1024, "257 KiB"),
        (1.25 * 1024, "1.3 KiB"),
        (1.75 * 2**20, "1.8 MiB"),
        (1023, "1023 B"),
        (3 * 2**40, "3.0 TiB"),
    ],
)
def test_a_half_is_rounded_up(size, written):
    assert byte_size(int(size)) == written


def test_the_exact_value_of_a_float_counts():
    assert [fixed(value, 1) for value in (0.25, 0.35, 0.45, 1.0, 0.0)] == [
        "0.3", "0.3", "0.5", "1.0", "0.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0"),
        (180e-6, "180 µs"),
        (9.7e-3, "9.7 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (8.46, "8.46 s"),
        (9.996, "10.0 s"),
        (123.4, "123 s"),
        (8460, "8460 s"),
    ],
)
def test_a_duration_has_no_power_of_ten(seconds, written):
    assert duration(seconds) == written


def test_durations_are_in_the_unit_that_fits():
    texts = [
        duration(10.0**power * lead) for power, lead in itertools.product(range(-7, 4), (1, 7))
    ]
    assert not any("e" in text for text in texts)
