from __future__ import annotations

import pytest

from workbench.modes import mode_class, mode_classes, refresh
from workbench.modes.core.machine_probes import first_line, once


def test_modes_are_found_by_name_and_ordered_by_application() -> None:
    assert [cls.order for cls in mode_classes()] == [10, 20, 30, 40, 50]
    assert mode_class("precision").label == "Precision"
    with pytest.raises(ValueError, match="'fsdp'; valid modes are: compile, precision, attention"):
        mode_class("fsdp")


def test_every_mode_is_complete() -> None:
    for cls in mode_classes():
        assert cls.name
        assert cls.default == cls.values[0]
        assert len(set(cls.values)) == len(cls.values)


def test_a_probe_runs_once_until_it_is_refreshed_and_forgets_failures() -> None:
    asked: list[str] = []

    @once
    def probe(name: str) -> int:
        asked.append(name)
        if len(asked) == 1:
            raise RuntimeError("busy")
        return len(asked)

    with pytest.raises(RuntimeError):
        probe("gpu")
    assert [probe("gpu"), probe("gpu")] == [2, 2]
    refresh()
    assert probe("gpu") == 3


def test_an_error_is_cut_to_one_line() -> None:
    assert first_line(RuntimeError("  no kernel.\nstack of C++ frames")) == "no kernel"
    assert first_line(NotImplementedError()) == "NotImplementedError"
