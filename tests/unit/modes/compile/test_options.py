from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._dynamo.utils import counters

from workbench.modes import ModeSet
from workbench.modes.compile.mode import Compile
from workbench.modes.compile.options import CompileOptions, mode_settings, torch_modes

CPU = torch.device("cpu")


class Branches(nn.Module):
    """Breaks where Python asks for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.sum() > 0:
            return y
        return y * 2


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()  # frames behind a break are shared by all models of a class
    counters.clear()
    # Inductor keeps its pool of threads for good: none is started where its cache is cold
    with torch._inductor.config.patch(compile_threads=1):
        yield
    counters.clear()


def num_compiled(model: nn.Module, text: str, batch: int = 4) -> int:
    """How many graphs one forward and backward under ``text`` had to compile."""
    modes = ModeSet.parse(text, CPU)
    modes.attach(model)
    counters.clear()
    try:
        with modes.forward_context():
            model(torch.ones(batch, 8)).sum().backward()
        return counters["stats"]["unique_graphs"]
    finally:
        modes.detach(model)


@given(
    st.sampled_from(["blocks", "whole"]),
    st.sampled_from(["", *torch_modes()]),
    st.sampled_from(["", "dynamic", "static"]),
    st.booleans(),
    st.randoms(),
)
def test_every_combination_is_written_in_one_way_whatever_the_order(
    regions: str, mode: str, shapes: str, fullgraph: bool, rng: object
) -> None:
    options = [name for name in (mode, shapes, "fullgraph" if fullgraph else "") if name]
    rng.shuffle(options)
    text = "compile:" + " , ".join([regions, *options])
    modes = ModeSet.parse(text.upper(), CPU)
    value = modes["compile"].value
    assert value == ",".join(
        [regions, *[name for name in (mode, shapes, "fullgraph") if name in options]]
    )
    assert ModeSet.parse(str(modes), CPU) == modes
    read = CompileOptions.parse(value)
    assert (read.regions, read.mode, read.fullgraph) == (regions, mode, fullgraph)
    assert read.dynamic is {"": None, "dynamic": True, "static": False}[shapes]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("whole,fast", r"unknown option 'fast' in compile:whole,fast; valid are: .*fullgraph$"),
        ("whole,", r"unknown option ''"),
        ("fast", r"valid values are: off, blocks, whole, and after blocks or whole options"),
        ("off,dynamic", r"gives options to what is off; say compile:off alone"),
        ("whole,dynamic,static", r"dynamic and static, which exclude each other"),
        ("blocks,max-autotune,reduce-overhead", r"exclude each other; at most one of these"),
        ("whole,fullgraph,fullgraph", r"says fullgraph twice"),
        ("whole,default", r"unknown option 'default'"),
    ],
)
def test_what_is_unknown_or_contradicts_itself_is_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModeSet.parse(f"compile:{value}", CPU)
    with pytest.raises(ValueError, match=message):
        ModeSet.parse("", CPU).with_value("compile", value)


def test_the_modes_on_offer_are_those_of_this_torch() -> None:
    from torch._inductor import list_mode_options

    assert {"reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"} <= set(torch_modes())
    assert set(torch_modes()) == set(list_mode_options()) - {"default"}
    assert mode_settings("reduce-overhead") == {"triton.cudagraphs": True}
    assert mode_settings("") == {}


def test_the_select_keeps_three_choices_and_shows_what_code_has_set() -> None:
    model = Branches()
    plain = ModeSet.parse("compile:whole", CPU)["compile"].choices_for(model)
    assert [choice.value for choice in plain] == ["off", "blocks", "whole"]
    own = ModeSet.parse("compile:whole,fullgraph", CPU)["compile"].choices_for(model)
    assert [choice.value for choice in own] == ["off", "blocks", "whole", "whole,fullgraph"]
    assert own[-1].available
    assert own[-1].why == ""


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("reduce-overhead", "on cpu reduce-overhead compiles as without it."),
        ("max-autotune", "on cpu max-autotune compiles as max-autotune-no-cudagraphs."),
        ("max-autotune-no-cudagraphs", ""),
    ],
)
def test_a_mode_that_wants_cuda_graphs_says_what_it_does_on_a_cpu(mode: str, why: str) -> None:
    choice = Compile(f"blocks,{mode}", CPU).choices_for(Branches())[-1]
    assert choice.why == (f"CUDA graphs need CUDA: {why}" if why else "")
    assert CompileOptions.parse(f"blocks,{mode}").without_effect(torch.device("cuda")) == ""
    assert ModeSet.parse(f"compile:blocks,{mode}", CPU).unavailable() is None


def test_the_other_values_of_a_set_with_options_print_without_them() -> None:
    modes = ModeSet.parse("compile:whole,dynamic+bf16", CPU)
    assert modes.text_with("compile", "off") == "bf16"
    assert modes.text_with("compile", "blocks") == "compile+bf16"
    assert str(modes.with_value("precision", "fp32")) == "compile:whole,dynamic"
    assert modes.compiled


def test_switching_options_finds_compiled_code_again() -> None:
    model = Branches()
    texts = ["compile:whole", "compile:whole,dynamic", "compile:whole,static"]
    first = [num_compiled(model, text) for text in texts]
    assert all(first), "options must not run what was compiled without them"
    again = [num_compiled(model, text) for text in itertools.chain(reversed(texts), texts)]
    assert not any(again)


def test_dynamic_compiles_once_for_all_sizes_and_static_once_for_each() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    sizes = (4, 5, 6)
    dynamic = [num_compiled(model, "compile:whole,dynamic", size) for size in sizes]
    static = [num_compiled(model, "compile:whole,static", size) for size in sizes]
    assert dynamic == [1, 0, 0]
    assert static == [1, 1, 1]


def test_a_mode_of_torch_reaches_inductor_also_with_a_chosen_attention_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import compile_fx as inductor

    patches: list[dict[str, object]] = []
    own = inductor.compile_fx

    def watched(*args: object, **kwargs: object) -> object:
        patches.append(dict(kwargs.get("config_patches") or {}))
        return own(*args, **kwargs)

    monkeypatch.setattr(inductor, "compile_fx", watched)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    num_compiled(model, "compile:whole,max-autotune-no-cudagraphs")
    num_compiled(model, "compile:whole,max-autotune-no-cudagraphs+attention:math")
    assert [found["max_autotune"] for found in patches if found] == [True, True]


def test_a_break_under_fullgraph_names_its_line_and_the_remedy() -> None:
    model = Branches()
    assert num_compiled(model, "compile:whole") > 0, "compiled with its break before"
    line = Branches.forward.__code__.co_firstlineno + 2
    for _ in range(2):
        with pytest.raises(
            RuntimeError,
            match=(
                r"^compile:whole,dynamic,fullgraph allows no graph break, and Branches has one at "
                rf"test_options\.py:{line} \(`if y\.sum\(\) > 0:`\): .*; "
                r"rewrite that line, or allow breaks: compile:whole,dynamic$"
            ),
        ):
            num_compiled(model, "compile:whole,fullgraph,dynamic")
    assert num_compiled(model, "compile:whole") == 0, "without fullgraph it runs as before"


def test_an_error_of_the_models_own_stays_what_it_is_under_fullgraph() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    modes = ModeSet.parse("compile:whole,fullgraph", CPU)
    modes.attach(model)
    with pytest.raises(Exception, match="must have same reduction dim") as caught:
        model(torch.randn(4, 7))
    assert "allows no graph break" not in str(caught.value)
    modes.detach(model)
