"""A GPU in words."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.allocator.memory_limit import GpuLimit
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.allocator.simulator.settings import GIB, MIB, SettingsError


@pytest.mark.parametrize(
    ("given", "total", "printed"),
    [
        ("8 GiB", 8 * GIB, "8 GiB"),
        ("8gib", 8 * GIB, "8 GiB"),
        ("1.5 GiB", 3 * GIB // 2, "1.5 GiB"),
        ("600 MiB", 600 * MIB, "600 MiB"),
        ("8GB", 8 * 10**9, "8 GB"),
        ("8000.5 mb", 80005 * 10**5, "8000.5 MB"),
        (8 * 10**9, 8 * 10**9, "8 GB"),
        (15_634_661_376, 15_634_661_376, "15634661376 B"),
        ("15634661376 B", 15_634_661_376, "15634661376 B"),
        (700 * MIB, 700 * MIB, "700 MiB"),
        ("t4", int(14.56 * GIB), "T4"),
        (
            " RTX 4090 , expandable_segments:True",
            int(23.64 * GIB),
            "RTX 4090, expandable_segments:True",
        ),
        (
            "8 GiB, max_split_size_mb:64, expandable_segments:True",
            8 * GIB,
            "8 GiB, max_split_size_mb:64,expandable_segments:True",
        ),
    ],
)
def test_what_is_read_is_printed_so_that_it_is_read_again(
    given: str | int, total: int, printed: str
) -> None:
    limit = GpuLimit.parse(given)
    assert limit.gpu.total_bytes == total
    assert limit.gpu.usable_bytes == total - CONTEXT_BYTES
    assert str(limit) == printed
    assert GpuLimit.parse(printed) == limit


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("RTX 9999", "no GPU is called 'RTX 9999'; known are T4"),
        ("", "no GPU is called ''"),
        ("8", "give an amount such as '8 GiB'"),
        ("100 KiB", "amount such as '8 GiB', in GiB, MiB, GB or MB"),
        ("100 MiB", "has nothing left"),
        (0, "has nothing left"),
        pytest.param(10**400, "a GPU has at most 128 TiB", id="400 zeros"),
        ((1 << 47) + 1, "a GPU has at most 128 TiB"),
        pytest.param("9" * 400 + " GiB", "a GPU has at most 128 TiB", id="400 nines"),
        ("200000 GB, expandable_segments:True", "a GPU has at most 128 TiB"),
        ("8 GiB, colour:blue", "'colour' is no setting"),
        ("8 GiB, max_split_size_mb:1", "takes at least"),
    ],
)
def test_what_is_no_gpu_says_what_is(given: str | int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GpuLimit.parse(given)


@pytest.mark.parametrize(
    ("total", "name"),
    [
        (8 * 10**9, "8 GB"),
        (80 * GIB, "80 GiB"),
        (15_634_661_376, "14.56 GiB"),  # what a T4 says of itself
        (7_999_999_999, "7.45 GiB"),
        (81_559 * MIB, "81559 MiB"),
        (600 * MIB, "600 MiB"),
        (CONTEXT_BYTES + 1, "0.50 GiB"),
    ],
)
def test_a_gpu_of_plain_bytes_has_a_name_that_can_be_said(total: int, name: str) -> None:
    limit = GpuLimit.parse(total)
    assert (limit.gpu.name, limit.gpu.total_bytes) == (name, total)
    assert GpuLimit.parse(str(limit)).gpu == limit.gpu


@pytest.mark.parametrize("given", [8.0, True, [], None])
def test_other_types_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="a GPU is a name"):
        GpuLimit.parse(given)


def test_settings_are_added_to_those_there_are() -> None:
    limit = GpuLimit.parse("8 GiB, max_split_size_mb:64")
    more = limit.with_settings("expandable_segments:True")
    assert str(more) == "8 GiB, max_split_size_mb:64,expandable_segments:True"
    assert more.with_settings("max_split_size_mb:128").settings.max_split_size == 128 * MIB
    assert issubclass(SettingsError, ValueError)


def test_an_allocator_has_what_is_left_and_no_more() -> None:
    allocator = GpuLimit.parse("600 MiB").allocator()
    allocator.malloc(80 * MIB)
    assert not allocator.holds(2**60) or allocator.device.capacity == 88 * MIB
    assert allocator.device.capacity == 88 * MIB
    with pytest.raises(Exception, match="out of memory"):
        allocator.malloc(20 * MIB)
