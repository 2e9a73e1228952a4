"""What is read of torch's insides is still there: these fail loudly when torch moves it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.dynamo.listen.recorder import _TIMES
from workbench.modes import ModeSet
from workbench.torch_private.dynamo import (
    RESUMED,
    TRACE_LOGGER,
    Compiling,
    Traced,
    being_compiled,
    operation_names,
    region_name,
    traced,
)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Traced] = []
        self.compiling: list[Compiling] = []

    def emit(self, record: logging.LogRecord) -> None:
        event = traced(record)
        if event is None:
            return
        self.events.append(event)
        if event.kind == "dynamo_start":
            found = being_compiled()
            assert found is not None
            self.compiling.append(found)


@contextmanager
def listening() -> Iterator[_Listener]:
    listener = _Listener()
    logging.getLogger(TRACE_LOGGER).addHandler(listener)
    try:
        yield listener
    finally:
        logging.getLogger(TRACE_LOGGER).removeHandler(listener)


def breaking(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x + 1
    return x * 2


def test_every_event_that_is_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A backward that is in the cache already is not compiled, and nothing is reported of it.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compiled = torch.compile(breaking)
    x = torch.ones(4, requires_grad=True)
    with listening() as listener:
        compiled(x).sum().backward()
        compiled(torch.ones(5, requires_grad=True))
    kinds = {event.kind for event in listener.events}
    assert {
        "dynamo_start",
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "inductor_output_code",
        "compilation_metrics",
        "bwd_compilation_metrics",
    } <= kinds
    assert any(kind.startswith("fx_graph_cache_") for kind in kinds)
    assert any(kind.startswith("aotautograd_cache_") for kind in kinds)
    metrics = next(e.details for e in listener.events if e.kind == "compilation_metrics")
    read = {*_TIMES.values(), "graph_op_count", "guard_count", "is_forward", "fail_type"}
    assert read <= set(metrics)
    assert {e.compile_id for e in listener.events} >= {"0/0", "0/1", "1/0"}


def test_the_compiled_function_lies_on_the_stack_and_what_called_it_too() -> None:
    compiled = torch.compile(breaking)
    with listening() as listener:
        compiled(torch.ones(4))
    first, rest = listener.compiling
    assert first.code is first.root is breaking.__code__
    assert rest.code.co_name.startswith(f"{RESUMED}breaking_at_")
    assert rest.root.co_name == "breaking"
    assert "x" in rest.root_locals
    assert being_compiled() is None


def test_a_module_s_region_is_found_by_its_code() -> None:
    model, modes = nn.Sequential(nn.Linear(2, 2)), ModeSet.parse("compile:whole", "cpu")
    assert region_name(model) == ""
    modes.attach(model)
    try:
        assert region_name(model).startswith("Sequential_region_")
    finally:
        modes.detach(model)


def test_operations_are_listed() -> None:
    assert {"gelu", "mm", "_softmax", "native_layer_norm_backward"} <= operation_names()


def test_nothing_is_told_outside_of_compilations() -> None:
    compiled = torch.compile(breaking)
    compiled(torch.ones(4))
    with listening() as listener:
        for _ in range(5):
            compiled(torch.ones(4))
    assert listener.events == []


def test_inductor_names_ten_operations_at_most() -> None:
    from torch._inductor import config

    from workbench.dynamo.listen.kernels import MOST_NAMED

    assert config.kernel_name_max_ops == MOST_NAMED


@pytest.mark.skipif(sys.platform == "win32", reason="torch's trace writes to a folder of Linux")
def test_the_trace_logger_does_not_propagate() -> None:
    """Else a person's own logging would print an empty line for every event."""
    assert not logging.getLogger(TRACE_LOGGER).propagate
