"""A name that another torch lacks is missed, and nothing breaks until it is used."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable

import pytest
import torch
from torch.overrides import TorchFunctionMode

from workbench.torch_private import lookup, self_check
from workbench.torch_private.lookup import Check, MissingInTorchError, expect, private

FILES = sorted({file for files in self_check.FILES.values() for file in files})
NAMES = [
    (file, name)
    for file in FILES
    for check in self_check.checks_of(file)
    for name in dict.fromkeys(check.names)
]


Said = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def said(ran: Callable[..., subprocess.CompletedProcess[str]]) -> Said:
    """What the checks say without each of the names, from a process of its own."""
    done = ran("from tests.unit.torch_private.taken_away import main; main()")
    assert done.returncode == 0, done.stderr
    found: Said = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_a_name_that_is_taken_away_is_missed(said: Said, file: str, name: str) -> None:
    assert [sentence for sentence in said[file][name] if name in sentence]


@pytest.mark.parametrize("file", FILES)
def test_of_this_torch_nothing_is_missed_before_and_after(said: Said, file: str) -> None:
    assert said[file][""] == said[file][" "] == []


def test_every_file_that_wraps_private_names_is_checked_for_a_feature() -> None:
    from pathlib import Path

    here = Path(self_check.__file__).parent
    helpers = {"__init__", "lookup", "self_check", "tensor_table"}
    assert {path.stem for path in here.glob("*.py")} - helpers == set(FILES)


@pytest.mark.parametrize("feature", ["training", "graphs", "memory", "types"])
def test_a_check_neither_sees_nor_changes_what_its_caller_has_entered(feature) -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    before, number = torch.get_rng_state(), torch.autograd._get_sequence_nr()
    self_check.self_check.cache_clear()
    with torch.inference_mode(), torch.device("meta"), Watch():
        assert self_check.self_check(feature) == ()
    assert seen == []
    assert torch.equal(before, torch.get_rng_state())
    assert torch.autograd._get_sequence_nr() == number
    assert not [one for one in threading.enumerate() if one.name == "workbench-self-check"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_check_does_not_depend_on_the_default_dtype(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # of the process, not of a thread
    try:
        for file in FILES:
            assert self_check.problems(self_check.checks_of(file)) == []
    finally:
        torch.set_default_dtype(before)


def test_a_check_calls_no_hook_that_a_user_put_on_all_modules() -> None:
    called = []
    register = torch.nn.modules.module
    handles = [
        register.register_module_forward_hook(lambda *_: called.append("forward")),
        register.register_module_parameter_registration_hook(lambda *_: called.append("new")),
        register.register_module_buffer_registration_hook(lambda *_: called.append("buffer")),
    ]
    try:
        for file in FILES:
            self_check.problems(self_check.checks_of(file))
    finally:
        for handle in handles:
            handle.remove()
    assert called == []


def test_a_name_that_is_missing_raises_when_it_is_used_and_says_what_to_do() -> None:
    missing = private("torch._C._no_such_name")
    assert lookup.is_missing(missing)
    assert not lookup.is_missing(private("torch._C._set_grad_enabled"))

    def enter() -> None:
        with missing:
            pass

    class Derived(missing):
        pass

    for use in (missing, lambda: missing.attribute, enter, Derived, lambda: isinstance(1, missing)):
        with pytest.raises(MissingInTorchError, match=r"has no torch\._C\._no_such_name.*2\.13"):
            use()


def test_a_module_is_imported_on_the_way_to_a_name() -> None:
    assert lookup.is_missing(private("torch._no_such_module.name"))
    assert callable(private("torch.nn._reduction.legacy_get_string"))


def test_a_feature_that_cannot_work_refuses_and_another_says_so(monkeypatch) -> None:
    def fails() -> None:
        expect(False, "it is another number")

    def found(vital_for: tuple[str, ...]) -> None:
        check = Check(("torch._C._a", "torch._C._b"), "the order", fails, vital_for=vital_for)
        monkeypatch.setattr(self_check, "checks_of", lambda _file: (check,))
        self_check.self_check.cache_clear()

    monkeypatch.setitem(self_check.FILES, "types", ("one",))
    try:
        found(vital_for=("graphs",))
        (sentence,) = self_check.notes_of("types")
        assert sentence == (
            f"torch {torch.__version__} lacks or has changed torch._C._a, torch._C._b "
            "(AssertionError: it is another number), which Workbench uses for the order: that may "
            f"be wrong or missing. It was tested with torch {lookup.TESTED}."
        )
        found(vital_for=("types",))
        with pytest.raises(
            MissingInTorchError, match=r"for the order: no data types can be recorded\."
        ):
            self_check.notes_of("types")
    finally:
        self_check.self_check.cache_clear()
