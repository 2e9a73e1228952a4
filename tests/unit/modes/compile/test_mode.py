from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import profile

from tests.strangers import as_stranger, needs_a_stranger, shared_folder
from workbench.modes import ModeSet, refresh
from workbench.modes.compile.mode import Compile
from workbench.modes.compile.toolchain import missing_for_compile, use_persistent_cache

Make = Callable[..., nn.Module]
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture
def inductor_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        folder = Path(__file__).parents[4] / ".cache" / "inductor"
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))


def compiled(model: nn.Module) -> list[str]:
    return [n for n, m in model.named_modules() if m.__dict__.get("_compiled_call_impl")]


def test_blocks_and_whole_compile_what_they_say(make_early_exit: Make, cpu: torch.device) -> None:
    model = make_early_exit()
    for text, expected in [
        ("compile", ["body.0", "body.1", "body.2"]),
        ("compile:whole", [""]),
        ("", []),
    ]:
        ms = ModeSet.parse(text, cpu)
        ms.attach(model)
        assert compiled(model) == expected
        assert ms.compiled is bool(expected)
        ms.detach(model)
        assert compiled(model) == []


def test_blocks_of_a_model_without_any_compile_the_whole(cpu: torch.device) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    assert Compile("blocks", cpu).targets(model) == [model]


def test_a_module_the_user_compiled_is_given_back_as_it_was(cpu: torch.device) -> None:
    model = nn.Linear(2, 2)
    model.compile(backend="eager")
    own = model._compiled_call_impl
    ms = ModeSet.parse("compile:whole", cpu)
    ms.attach(model)
    assert model._compiled_call_impl is not own
    ms.detach(model)
    assert model._compiled_call_impl is own


def test_detaching_after_the_model_is_gone_is_harmless(
    make_early_exit: Make, cpu: torch.device
) -> None:
    ms = ModeSet.parse("compile", cpu)
    ms.attach(make_early_exit())
    ms.detach(nn.Linear(2, 2))


@pytest.mark.usefixtures("inductor_cache")
def test_compiled_blocks_train_like_the_model_as_written(
    make_early_exit: Make, cpu: torch.device
) -> None:
    torch.manual_seed(0)
    model, x = make_early_exit(), torch.randn(4, 8)
    plain = model(x)
    plain.square().mean().backward()
    gradient = model.stem.weight.grad.clone()
    model.zero_grad()
    ms = ModeSet.parse("compile", cpu)
    ms.attach(model)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    out = model(x)
    out.square().mean().backward()
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.stem.weight.grad, gradient, rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1  # one for all three
    ms.detach(model)
    assert torch.equal(model(x), plain)


class Net(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.usefixtures("inductor_cache")
@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU())])
def test_blocks_of_torchs_own_classes_really_run_compiled(
    make: Callable[[], nn.Module], cpu: torch.device
) -> None:
    from torch._dynamo.utils import counters

    model = Net([make() for _ in range(3)])
    modes = ModeSet.parse("compile", cpu)
    modes.attach(model)
    counters.clear()
    model(torch.randn(4, 8)).sum().backward()
    first = counters["stats"]["unique_graphs"]
    assert 1 <= first <= 2, "equal blocks share a region; the first one's input needs no gradient"
    modes.detach(model)
    counters.clear()
    modes.attach(model)
    model(torch.randn(4, 8)).sum().backward()
    assert counters["stats"]["unique_graphs"] == 0, "switched back on, it finds what it compiled"


@pytest.mark.usefixtures("inductor_cache")
def test_a_switch_of_attention_reaches_into_compiled_code(
    make_attends: Make, cpu: torch.device
) -> None:
    model, x = make_attends(), torch.randn(2, 8, 16)
    ran_flash = []
    for text in ("compile:whole", "compile:whole+attention:math", "compile:whole"):
        ms = ModeSet.parse(text, cpu)
        ms.attach(model)
        with ms.forward_context():
            model(x)
            with profile() as prof:
                model(x)
        ms.detach(model)
        ran_flash.append(FLASH in {event.key for event in prof.key_averages()})
    assert ran_flash == [True, False, True]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch._inductor.cpp_builder import cpp_compiler_search

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    cpp_compiler_search.cache_clear()
    refresh()
    yield
    monkeypatch.undo()
    cpp_compiler_search.cache_clear()
    refresh()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_choice_says_why_and_what_to_type(cpu: torch.device) -> None:
    off, blocks, whole = Compile.choices(cpu)
    assert off.available
    assert not blocks.available
    assert not whole.available
    assert blocks.why == (
        "Compiled modules are built as C++ for this CPU. No g++ is on PATH and CXX is not set."
    )
    assert blocks.commands[0] == "conda install -c conda-forge cxx-compiler"
    refused = ModeSet.parse("compile+bf16", cpu).unavailable()
    assert refused.startswith("compile blocks is not available here: Compiled modules are built")
    assert "sudo apt install g++" in refused
    assert ModeSet.parse("bf16", cpu).unavailable() is None


def test_with_a_compiler_everything_can_be_chosen(cpu: torch.device) -> None:
    assert missing_for_compile(cpu) is None
    assert all(choice.available for choice in Compile.choices(cpu))


def test_compiled_code_is_kept_where_the_next_kernel_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_persistent_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "workbench" / "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    use_persistent_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"


@pytest.mark.parametrize(
    "why", ["it cannot be made", "others can write to it", "it is noexec", "there is no home"]
)
def test_a_cache_that_cannot_be_ones_own_is_made_anew(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is in it is run. Torch's default is a name that anybody can take first."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with shared_folder(0o755) as home:
        if why == "it cannot be made":
            (home / "workbench").write_text("")
        elif why == "others can write to it":
            (home / "workbench" / "inductor").mkdir(parents=True)
            (home / "workbench").chmod(0o777)
        elif why == "it is noexec":
            monkeypatch.setattr(os, "ST_NOEXEC", 8, raising=False)
            monkeypatch.setattr(
                os, "statvfs", lambda path: statvfs(8 if str(home) in str(path) else 0)
            )
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        if why == "there is no home":  # as of a user without a name in a container
            monkeypatch.setenv("XDG_CACHE_HOME", "")
            monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        use_persistent_cache()
        found = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert not found.is_relative_to(home)
    assert found.stat().st_mode & 0o777 == 0o700


def statvfs(flag: int) -> object:
    return type("Flags", (), {"f_flag": flag})


def test_where_nothing_can_be_run_from_compiled_code_is_kept_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Torch then says itself that it cannot load what it has built."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "ST_NOEXEC", 8, raising=False)
    monkeypatch.setattr(os, "statvfs", lambda _path: statvfs(8))
    use_persistent_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "workbench" / "inductor")


@needs_a_stranger
@pytest.mark.parametrize("made_first", ["workbench", "workbench/inductor"])
def test_a_cache_that_a_second_user_made_first_is_not_used(
    made_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He needs no more than a cache folder in which everybody makes their own."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with shared_folder(0o1777) as caches:
        as_stranger("os.makedirs(sys.argv[1], mode=0o777)", caches / made_first)
        monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
        use_persistent_cache()
        found = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
        assert not found.is_relative_to(caches)
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_gpu_without_triton_is_reported() -> None:
    pytest.importorskip("torch.utils._triton")
    if torch.utils._triton.has_triton_package():
        pytest.skip("Triton is installed here")
    missing = missing_for_compile(torch.device("cuda"))
    assert missing.short == "needs Triton"
    assert missing.commands == ("pip install triton",)
