"""Why parameters get no gradient: the reason, the sentence and the line."""

from __future__ import annotations

import gc
import weakref
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.cost import cost
from tests.unit.graph.graph_exit_cases import GRAPH_EXITS, Branch, copied_into_a_parameter, detach


def capture(model, x=None):
    x = torch.randn(3, 4) if x is None else x
    with wb.graph(model):
        loss = model(x).square().mean()
    return wb.graph(loss).record


def answers(record):
    return {one.name: one for one in record.unreached}


def line_of(record, one):
    return record.sources[one.source].text if one.source >= 0 else ""


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize(
    ("join", "reason", "said"), GRAPH_EXITS, ids=[one[0].__name__ for one in GRAPH_EXITS]
)
def test_the_graph_exit_and_its_line_are_named(join, reason, said):
    record = capture(Branch(join))
    found = answers(record)
    lost = found["lost.weight"]
    assert lost.reason == reason
    assert said in lost.text
    assert "main.weight" not in found
    assert line_of(record, lost).endswith("# exit")
    if join is not copied_into_a_parameter:
        assert found["lost.bias"].reason == reason
    assert record.notes == ()


def test_a_model_without_a_graph_exit_has_no_answers(classifier, batch):
    with wb.graph(classifier):
        loss = F.cross_entropy(classifier(batch[0]), batch[1])
    record = wb.graph(loss).record
    assert record.unreached == ()


def test_metadata_is_no_graph_exit():
    def noise(self, h, x):
        self.lost(x)  # thrown away; only its shape goes on
        y = self.lost(x)
        return h * (torch.rand_like(y) > 0.5) + y.new_ones(y.shape) + torch.zeros(y.shape)

    assert answers(capture(Branch(noise)))["lost.weight"].reason == "off_path"


def test_frozen_parameters_say_how_much_around_them_is_frozen():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    found = answers(capture(model))
    assert {one.reason for one in found.values()} == {"frozen"}
    assert found["0.1.bias"].text.endswith("as for all 4 parameters of `0`.")


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main, self.rare = nn.Linear(4, 4), nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.spare = nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = self.experts[1](self.main(x))
        return self.rare(h) if self.training and len(x) > 100 else h


def test_a_branch_not_taken_is_unused_and_its_module_did_not_run():
    found = answers(capture(Gated()))
    assert {name: one.reason for name, one in found.items()} == dict.fromkeys(
        ["spare", "rare.weight", "rare.bias"]
        + [f"experts.{i}.{p}" for i in (0, 2) for p in ("weight", "bias")],
        "unused",
    )
    assert "`rare` did not run" in found["rare.weight"].text
    assert found["spare"].text == "No operation took it, though the model ran."


def test_a_shared_parameter_that_is_reached_once_is_reached():
    def tied(self, h, x):
        return h + self.lost(x).detach() + self.lost(x)

    assert capture(Branch(tied)).unreached == ()


def test_the_last_of_several_graph_exits_is_named():
    def twice(self, h, x):
        y = self.lost(x).detach()
        z = self.lost(x).argmax(1, keepdim=True)  # later
        return h + y + z

    record = capture(Branch(twice))
    one = answers(record)["lost.weight"]
    assert one.reason == "not_differentiable"
    assert line_of(record, one).endswith("# later")


def test_a_graph_exit_behind_another_is_reported():
    def chain(self, h, x):
        y = self.lost(x).detach() * h  # first
        return self.main(x) + (y > 0)  # second

    record = capture(Branch(chain))
    one = answers(record)["lost.weight"]
    assert line_of(record, one).endswith("# first")
    assert "Further on, `gt`" in one.text


def test_a_graph_exit_that_is_not_on_the_path_is_not_named():
    def metric(self, h, x):
        y = self.lost(x)  # used
        self.accuracy = (y.argmax(1) == 1).float().mean()
        return h

    one = answers(capture(Branch(metric)))["lost.weight"]
    assert one.reason == "off_path"


def test_without_a_trace_nothing_is_guessed():
    model = Branch(detach)
    model.main.bias.requires_grad_(False)
    found = answers(wb.graph(model(torch.randn(3, 4)).sum(), model=model).record)
    assert found["main.bias"].reason == "frozen"
    assert "not known" in found["lost.weight"].text
    assert found["lost.weight"].source == -1


def test_two_losses_of_one_forward_have_answers_of_their_own(early_exit):
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    with wb.graph(early_exit):
        late, early = early_exit(x)
        losses = F.cross_entropy(late, y), F.cross_entropy(early, y)
    by_late, by_early = (answers(wb.graph(loss).record) for loss in losses)
    assert set(by_late) == {"aux.weight", "aux.bias"}
    assert {name.split(".")[0] for name in by_early} == {"block2", "head"}
    assert {one.reason for one in (*by_late.values(), *by_early.values())} == {"off_path"}


def test_compiled_regions_are_seen_from_outside():
    def outside(self, h, x):
        with torch.no_grad():
            y = self.lost(x)  # exit
        return h + y

    torch._dynamo.reset()
    model = Branch(outside)
    model.lost.compile(backend="aot_eager")
    record = capture(model)
    one = answers(record)["lost.weight"]
    assert (one.reason, line_of(record, one)[-6:]) == ("no_grad", "# exit")
    model.join = lambda self, h, x: h + self.lost(x)
    assert capture(model).unreached == ()


def test_a_loop_of_graph_exits_is_one_graph_exit():
    def loop(self, h, x):
        for _ in range(200):
            h = h + self.lost(h.detach()).detach()
        return h

    model = Branch(loop)
    with wb.graph(model) as traced:
        model(torch.randn(3, 4)).square().mean().backward()
    assert {one.reason for one in traced.record.unreached} == {"detached"}
    assert len(traced.record.sources) < 8


def test_no_node_outlives_the_trace():
    kept = []

    def watched(self, h, x):
        y = self.lost(x)
        kept.extend([weakref.ref(y), weakref.ref(h)])
        return h + y.detach().argmax(1, keepdim=True)

    gc.disable()
    try:
        record = capture(Branch(watched))
        assert [reference() for reference in kept] == [None, None]
    finally:
        gc.enable()
    assert len(record.unreached) == 2


def test_a_fault_while_watching_is_a_note(monkeypatch):
    from workbench.graph.forward.graph_exit_recorder import GraphExitRecorder

    def fail(*_):
        raise ValueError("odd tensor")

    monkeypatch.setattr(GraphExitRecorder, "_look", fail)
    record = capture(Branch(detach))
    assert "ValueError: odd tensor" in record.notes[-1]


def test_thousands_of_frozen_parameters_cost_little():
    def captured(layers):
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers))).requires_grad_(False)
        model.append(nn.Linear(2, 2))
        loss = model(torch.ones(1, 2)).sum()
        record = wb.graph(loss, model=model).record
        return record, cost(lambda: wb.graph(loss, model=model))

    _, few = captured(300)
    record, many = captured(3000)
    assert many < 40 * few  # ten times as many; a search for each would be a hundred
    assert len(record.unreached) == 6000
    assert len({one.text for one in record.unreached}) <= 3000


def test_many_graph_exits_on_one_deep_graph_cost_one_walk():
    def captured(count):
        def logged(self, h, x):
            y = self.lost(x)
            for _ in range(count):
                h, y = torch.tanh(h), torch.tanh(y)
                self.last = y.mean().item()
            return h

        model = Branch(logged)
        watching = ExitStack()
        watching.enter_context(wb.graph(model))
        loss = model(torch.randn(3, 4)).sum()
        return model, loss, cost(watching.close, times=1)

    *_, few = captured(200)
    _model, loss, many = captured(2000)
    assert many < 40 * few  # ten times as many; a walk for each would be a hundred
    assert answers(wb.graph(loss).record)["lost.weight"].reason == "detached"
