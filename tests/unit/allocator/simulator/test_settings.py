"""Settings as torch writes and reads them."""

from __future__ import annotations

import pytest

from workbench.allocator.simulator.settings import MIB, AllocatorSettings, SettingsError


@pytest.mark.parametrize(
    "words",
    [
        "default",
        "max_split_size_mb:128",
        "expandable_segments:True",
        "garbage_collection_threshold:0.8",
        "roundup_power2_divisions:8",
        "large_segment_size_mb:32,max_split_size_mb:64",
        "garbage_collection_threshold:0.99999999",
    ],
)
def test_settings_are_written_as_they_are_read(words):
    found = AllocatorSettings.parse("" if words == "default" else words)
    again = AllocatorSettings.parse("" if str(found) == "default" else str(found))
    assert again == found


def test_spaces_and_keys_of_other_parts_do_not_matter():
    found = AllocatorSettings.parse(" expandable_segments : True , backend:native,")
    assert found == AllocatorSettings(expandable_segments=True)


@pytest.mark.parametrize(
    "words",
    [
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PYTORCH_ALLOC_CONF = expandable_segments:True",
        "export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'",
        'PYTORCH_HIP_ALLOC_CONF="expandable_segments:True"',
    ],
)
def test_settings_are_read_with_the_name_of_the_variable_before_them(words):
    assert AllocatorSettings.parse(words) == AllocatorSettings(expandable_segments=True)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("max_split_size_mb:10", "at least 20 MiB"),
        ("max_split_size_mb:many", "cannot be 'many'"),
        ("max_split_size_mb", "has no value"),
        ("expandable_segments:true", "cannot be 'true'; it is True or False"),
        ("max_split_size_mb:1GB", "cannot be '1GB'; it is a whole number of MiB"),
        ("garbage_collection_threshold:1.5", "less than 1"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[1:x]", "cannot be"),
        ("large_segment_size_mb:8", "above 10"),
        ("max_non_split_rounding_mb:1", "at least 20 MiB"),
        ("split:1", "known are max_split_size_mb"),
        ("roundup_power2_divisions:[300:4]", "cannot be"),
        ("roundup_power2_divisions:0", "cannot be '0'"),
        ("garbage_collection_threshold:0", "cannot be '0'"),
        ("max_split_size_mb:1_000", "cannot be '1_000'"),
        ("backend:cudaMallocAsync", "another allocator"),
        ("per_process_memory_fraction:0.5", "bytes of a GPU"),
    ],
)
def test_what_the_allocator_would_not_take_is_said(words, part):
    with pytest.raises(SettingsError, match=part):
        AllocatorSettings.parse(words)


def test_settings_of_a_snapshot():
    found = AllocatorSettings.of_snapshot(
        {
            "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:32,something_new:7",
            "max_split_size": 64 * MIB,
            "garbage_collection_threshold": 0.5,
            "expandable_segments": True,
            "roundup_power2_divisions": {str(2**power): 4 for power in range(16)},
        }
    )
    assert found == AllocatorSettings(
        max_split_size=64 * MIB,
        max_non_split_rounding=32 * MIB,
        garbage_collection_threshold=0.5,
        expandable_segments=True,
        roundup_power2_divisions=(4,) * 16,
        large_segment_size=32 * MIB,
    )
    assert AllocatorSettings.of_snapshot({}) == AllocatorSettings()
    assert AllocatorSettings.of_snapshot({"max_split_size": -1}).max_split_size is None


@pytest.mark.parametrize(
    "found",
    [
        {"max_split_size": "abc"},
        {"roundup_power2_divisions": [1]},
        {"garbage_collection_threshold": None},
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    ],
)
def test_settings_of_a_snapshot_that_are_none(found):
    with pytest.raises(SettingsError):
        AllocatorSettings.of_snapshot(found)
