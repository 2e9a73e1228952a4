"""The mode: its tokens, what a machine has room for, and that it touches no model here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.modes import Modes, ModeSet, find_modes
from workbench.modes.layout import mode as module
from workbench.modes.layout.mode import Parallel

CPU = torch.device("cpu")


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_room", lambda device: 4 if device.type == "cpu" else 1)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("ddp:2", "ddp:2"),
        ("parallel:ddp:2", "ddp:2"),
        ("FSDP:2,Keep", "fsdp:2,keep"),
        ("fsdp:2,bf16,keep", "fsdp:2,keep,bf16"),
        ("fsdp:2,hsdp=2+compile", "compile+fsdp:2,hsdp=2"),
        ("bf16 + ddp:2", "bf16+ddp:2"),
        ("parallel:off", "fp32"),
    ],
)
def test_a_layout_is_a_token_of_a_mode_string(text: str, printed: str) -> None:
    modeset = ModeSet.parse(text, CPU)
    assert str(modeset) == printed
    assert str(ModeSet.parse(printed, CPU)) == printed
    assert modeset.is_remote == (printed != "fp32")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ddp", "'ddp' is no parallel layout; valid: ddp:N or fsdp:N with N ranks from 1"),
        ("ddp:0", "'ddp:0' is no parallel layout"),
        ("ddp:2,keep", "unknown option 'keep' in 'ddp:2,keep'; ddp has: none"),
        ("fsdp:3,hsdp=2", "divides 3 ranks into 2 replicas"),
        ("ddp:2+fsdp:2", "give parallel twice"),
        ("dpp:2", "unknown mode 'dpp:2'.*ddp:2, fsdp:2"),
    ],
)
def test_what_is_none_is_refused_with_what_is_valid(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ModeSet.parse(text, CPU)


@pytest.mark.usefixtures("four_cores")
def test_as_many_ranks_are_offered_as_there_is_room_for() -> None:
    assert [c.value for c in Parallel.choices(CPU)] == ["off", "ddp:4", "fsdp:4"]
    mode = ModeSet.parse("fsdp:2,keep", CPU)["parallel"]
    offered = mode.choices_for(nn.Linear(1, 1))
    assert [c.value for c in offered] == ["off", "ddp:4", "fsdp:4", "fsdp:2,keep"]
    with pytest.raises(ValueError, match=r"needs 8 CPU cores.*room for 4: give ddp:N with N up to"):
        find_modes("ddp:8", CPU, nn.Linear(1, 1))


@pytest.mark.usefixtures("four_cores")
def test_a_gpu_of_its_own_is_what_a_rank_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_missing", lambda device: "")
    cuda = torch.device("cuda")
    _, ddp, fsdp = module.Parallel.choices(cuda)
    assert not ddp.available
    assert not fsdp.available
    assert ddp.why == "This machine has 1 GPU, and every rank needs one of its own."
    assert ddp.commands[0] == 'exp.modes = "ddp:1"'
    assert Parallel("fsdp:1", cuda).refusal(nn.Linear(1, 1)) == ""
    assert "room for 1" in Parallel("fsdp:4", cuda).refusal(nn.Linear(1, 1))


def test_shards_of_a_cpu_are_in_host_memory_already() -> None:
    with pytest.raises(ValueError, match="leave offload out"):
        find_modes("fsdp:2,offload", CPU, nn.Linear(1, 1))


def test_a_model_stays_as_it_is() -> None:
    model = nn.Linear(3, 3)
    before = dict(vars(model))
    modeset = ModeSet.parse("ddp:2", CPU)
    modeset.attach(model)
    assert dict(vars(model)) == before
    modeset.detach(model)


def test_a_loop_of_ones_own_starts_its_own_ranks() -> None:
    with pytest.raises(ValueError, match=r"an Experiment does \(exp.modes = 'ddp:2'\).*torchrun"):
        Modes("bf16+ddp:2")
    modes = Modes("bf16")
    with pytest.raises(ValueError, match="torchrun"):
        modes.set("fsdp:2")


def test_what_torch_says_of_a_shard_is_explained() -> None:
    error = RuntimeError("aten.addmm.default got mixed torch.Tensor and DTensor, need to convert")
    said = ModeSet.parse("fsdp:2", CPU).explain(error)
    assert "outside of the block's forward" in said
    assert "ddp:2" in said
    assert not ModeSet.parse("ddp:2", CPU).explain(error)
    assert not ModeSet.parse("fsdp:2", CPU).explain(RuntimeError("another"))


@pytest.mark.filterwarnings("ignore")  # torch's, of kinds of tensors that may yet change
@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.eye(2).to_sparse(), "of layout sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "of layout sparse_csr"),
        (lambda: torch.ones(2).to_mkldnn(), "of layout mkldnn"),
        (lambda: torch.ones(1).expand(2), "expanded"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "a nested tensor"),
    ],
)
def test_a_buffer_that_is_no_plain_memory_is_refused_by_its_name(
    make: Callable[[], torch.Tensor], said: str
) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_buffer("plain", torch.ones(2, 1, 3).transpose(0, 2))
    model[0].register_buffer("scale", make(), persistent=False)
    for layout in ("ddp:2", "fsdp:2"):
        refused = Parallel(layout, CPU).refusal(model)
        assert refused.startswith(
            f"parallel {layout} cannot train Sequential: its buffer 0.scale is {said}, and ranks"
        )
    model[0].scale = torch.ones(2)
    assert Parallel("ddp:2", CPU).refusal(model) == ""


@pytest.mark.usefixtures("four_cores")
def test_batch_norm_over_ranks_is_refused_on_a_cpu_where_it_trains() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))
    for layout in ("ddp:2", "fsdp:2"):
        refused = Parallel(layout, CPU).refusal(model)
        assert refused.startswith(f"parallel {layout} cannot train 1 on the CPU: torch has a Sync")
    with pytest.raises(ValueError, match=r"Use nn\.BatchNorm1d, 2d or 3d there"):
        find_modes("ddp:2", CPU, model)
    assert Parallel("ddp:1", CPU).refusal(model) == ""
    model[1].eval()
    assert Parallel("ddp:2", CPU).refusal(model) == ""
