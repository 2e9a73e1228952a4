from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.profiler import profile

from workbench.modes import ModeSet, refresh
from workbench.modes.attention import Attention

Make = Callable[..., nn.Module]
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
MATH = "aten::_scaled_dot_product_attention_math"


def kernels(ms: ModeSet, model: nn.Module, x: torch.Tensor) -> set[str]:
    with profile() as prof, ms.forward_context():
        model(x)
    return {event.key for event in prof.key_averages()} & {FLASH, MATH}


def test_the_chosen_kernel_is_the_one_that_runs(make_attends: Make, cpu: torch.device) -> None:
    model, x = make_attends(), torch.randn(2, 8, 16)
    assert kernels(ModeSet.parse("attention:flash", cpu), model, x) == {FLASH}
    assert kernels(ModeSet.parse("attention:math", cpu), model, x) == {MATH}
    assert kernels(ModeSet.parse("", cpu), model, x) == {FLASH}


def test_a_kernel_that_cannot_serve_the_model_says_what_to_choose(
    make_attends: Make, cpu: torch.device
) -> None:
    ms = ModeSet.parse("attention:flash", cpu)
    with (
        pytest.raises(RuntimeError, match="choose attention:auto or attention:math") as caught,
        pytest.warns(UserWarning, match="dropout"),
        ms.forward_context(),
    ):
        make_attends(dropout=0.5)(torch.randn(2, 8, 16))
    assert "forward" in [entry.name for entry in caught.traceback]


def test_an_error_of_the_user_passes_unchanged(cpu: torch.device) -> None:
    with (
        pytest.raises(RuntimeError, match="mat1 and mat2"),
        ModeSet.parse("attention:math", cpu).forward_context(),
    ):
        nn.Linear(3, 4)(torch.ones(2, 8))


def test_choices_are_what_a_small_attention_could_run(cpu: torch.device) -> None:
    choices = {choice.value: choice for choice in Attention.choices(cpu)}
    assert list(choices) == ["auto", "flash", "efficient", "math"]
    assert choices["flash"].available
    assert choices["math"].available
    assert not choices["efficient"].available
    assert choices["efficient"].why
    assert choices["efficient"].remedy


def test_a_kernel_of_another_device_is_refused(cpu: torch.device) -> None:
    assert ModeSet.parse("attention:cudnn", cpu).unavailable() == (
        "attention cudnn does not exist on cpu"
    )


def reason(model: nn.Module) -> str:
    return Attention("auto", torch.device("cpu")).no_effect_reason(model)


def test_models_with_attention_claim_nothing(make_attends: Make) -> None:
    assert reason(make_attends()) == ""
    assert reason(nn.TransformerEncoderLayer(16, 2)) == ""
    assert reason(nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(16, 2))) == ""


def test_models_without_attention_are_said_to_have_none(make_early_exit: Make) -> None:
    assert reason(make_early_exit()) == "model has no attention"
    assert reason(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == "model has no attention"


def test_attention_behind_a_helper_function_is_found() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    class Hidden(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(x)

        def mix(self, x: torch.Tensor) -> torch.Tensor:
            return attend(x)

    assert reason(Hidden()) == ""


def test_a_model_whose_code_cannot_be_read_claims_nothing() -> None:
    with pytest.warns(DeprecationWarning, match="torch.jit.trace"):
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    assert reason(scripted) == ""


@pytest.mark.parametrize(
    ("implementation", "expected"), [("sdpa", ""), ("eager", "model uses eager attention")]
)
def test_the_configuration_of_a_transformers_model_is_read(
    implementation: str, expected: str
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig(
        dim=16, hidden_dim=16, n_layers=1, n_heads=2, vocab_size=50
    )
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation)
    assert reason(model) == expected


def test_two_threads_leave_the_switches_of_the_process_as_they_were(cpu: torch.device) -> None:
    before = (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())
    first_is_in, first_may_go, seen = threading.Event(), threading.Event(), list[bool]()

    def first() -> None:
        with ModeSet.parse("attention:math", cpu).forward_context():
            first_is_in.set()
            first_may_go.wait(300)

    def second() -> None:
        with ModeSet.parse("attention:flash", cpu).forward_context():
            seen.append(torch.backends.cuda.flash_sdp_enabled())
            seen.append(torch.backends.cuda.math_sdp_enabled())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert first_is_in.wait(120)
    threads[1].start()
    threads[1].join(0.2)
    first_may_go.set()
    for thread in threads:
        thread.join(120)
    assert seen == [True, False]
    after = (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())
    assert after == before


def test_asking_again_what_can_run_never_touches_the_switches_beside_a_step(
    cpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    ModeSet.parse("", cpu)  # every experiment makes one before it trains
    refresh()

    def touched(*_args: object) -> None:
        raise AssertionError("the switches of the whole process were set")

    monkeypatch.setattr("workbench.modes.attention.sdpa_kernel", touched)
    assert next(choice.value for choice in Attention.choices(cpu)) == "auto"
