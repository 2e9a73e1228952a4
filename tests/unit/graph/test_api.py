from __future__ import annotations

import base64
import copy
import sys
import threading
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph import GraphView
from workbench.graph.capture.record_builder import INFERRED, NO_MODEL
from workbench.records import MemoryChart, RecordError


def test_the_model_is_found_in_the_callers_variables(classifier, batch):
    x, y = batch
    unrelated = nn.Linear(2, 2)
    part = classifier[0]
    record = wb.graph(F.cross_entropy(classifier(x), y)).record
    assert record.model == "Sequential"
    assert {n.name for n in record.nodes if n.name} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert record.notes == (INFERRED,)
    del unrelated, part


def test_the_model_of_a_trainer_object_is_found(classifier, batch):
    class Trainer:
        def __init__(self) -> None:
            self.network = classifier

        def show(self):
            return wb.graph(F.cross_entropy(self.network(batch[0]), batch[1]))

    assert Trainer().show().record.model == "Sequential"


def test_without_any_model_the_graph_is_still_whole(batch):
    def loss_of_a_model_nobody_holds():
        return nn.Linear(3, 2)(batch[0]).sum()

    record = wb.graph(loss_of_a_model_nobody_holds()).record
    assert record.notes == (NO_MODEL,)
    assert [m.path for m in record.modules] == ["loss"]


def test_plain_tensors_are_inputs_with_their_variables_name():
    weight = torch.randn(3, requires_grad=True)
    record = wb.graph((weight**2).sum()).record
    assert (record.nodes[0].kind, record.nodes[0].name) == ("input", "weight")
    assert record.notes == ()


def test_leaves_in_a_list_or_a_dictionary_go_by_their_place_in_it():
    weights = {"scale": torch.randn(3, requires_grad=True)}
    layers = [torch.randn(3, requires_grad=True) for _ in range(2)]
    record = wb.graph((weights["scale"] * layers[0] * layers[1]).sum()).record
    names = [node.name for node in record.nodes if node.kind == "input"]
    assert names == ["weights['scale']", "layers[0]", "layers[1]"]


def test_a_variable_that_fails_to_be_read_does_not_stop_a_capture():
    class Broken(Mapping):
        def __getitem__(self, key):
            raise OSError("the file is closed")

        def __iter__(self):
            return iter("ab")

        def __len__(self):
            return 2

    data, weight = Broken(), torch.randn(3, requires_grad=True)
    assert wb.graph((weight**2).sum()).record.nodes[0].name == "weight"
    del data


def test_a_block_captures_the_loss_that_runs_backward(classifier, batch):
    x, y = batch
    with wb.graph(classifier) as view:
        assert not view.has_record
        F.cross_entropy(classifier(x), y).backward()
    assert view.record.saved_bytes == 124
    assert view.record.notes == ()
    assert view.record.loss > 0


def test_a_block_without_a_loss_says_what_to_do(classifier):
    with wb.graph(classifier) as view:
        pass
    with pytest.raises(RuntimeError, match=r"call loss\.backward\(\) inside"):
        _ = view.record
    assert "no loss was seen to run backward in the block" in str(view)


def test_a_block_that_ended_with_an_error_says_so(classifier):
    view = wb.graph(classifier)
    with pytest.raises(ValueError, match="mine"), view:
        raise ValueError("mine")
    assert str(view) == "Graph: the block ended with ValueError before a loss ran backward."


def test_blocks_neither_nest_nor_repeat(classifier):
    block = wb.graph(classifier)
    with block, pytest.raises(RuntimeError, match="do not nest"), wb.graph(classifier):
        pass
    with pytest.raises(RuntimeError, match="used already"), block:
        pass


def test_a_block_that_ends_on_another_thread_is_over(classifier, batch):
    """A generator that holds a block may be closed by whatever thread collects it."""

    def steps():
        with wb.graph(classifier):
            yield F.cross_entropy(classifier(batch[0]), batch[1])

    generator = steps()
    next(generator).backward()
    closer = threading.Thread(target=generator.close)
    closer.start()
    closer.join()
    with wb.graph(classifier) as view:
        loss = F.cross_entropy(classifier(batch[0]), batch[1])
        loss.backward()
    assert view.record.loss == pytest.approx(loss.item())
    assert not torch.overrides._get_current_function_mode_stack()
    assert not any(module._forward_hooks for module in classifier.modules())


def test_saved_and_opened_again(record, tmp_path):
    path = GraphView(record).save(tmp_path / "step.safetensors")
    again = wb.graph(path).record
    assert again.nodes == record.nodes
    assert (again.edges == record.edges).all()
    assert str(wb.graph(str(path))) == str(wb.graph(record))


def test_a_saved_diff_opens_as_a_diff(record, tmp_path):
    view = wb.graph(record).diff(record)
    again = wb.graph(view.save(tmp_path / "diff.safetensors"))
    assert str(again) == str(view)
    with pytest.raises(ValueError, match=r"a graph is saved as .*\.dot"):
        wb.graph(record).save(tmp_path / "graph.xls")


def test_bad_targets_name_what_came_and_what_is_valid(tmp_path):
    with pytest.raises(TypeError, match="graph\\(\\) got int; it takes a loss tensor"):
        wb.graph(3)
    with pytest.raises(TypeError, match="graph\\(\\) got NoneType"):
        wb.graph()
    with pytest.raises(TypeError, match=r"model= takes an nn\.Module, got str"):
        wb.graph(torch.ones(1), model="net")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        wb.graph(tmp_path / "nowhere.safetensors")
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"not a record")
    with pytest.raises(RecordError, match="holds no graph record"):
        wb.graph(other)
    assert MemoryChart


def test_the_package_itself_answers_the_verb(classifier, batch):
    """``import workbench.graph`` binds the name ``workbench.graph`` to the package."""
    package = sys.modules["workbench.graph"]
    assert package(classifier(batch[0]).sum()).record.model == "Sequential"


HOSTILE = [
    "<script>alert(1)</script>",
    "new\nline",
    "x" * 10_000,
    "\x1b[31m",
    "&amp;\"'",
    "🙂" * 50,
]


def test_hostile_names_are_kept_in_the_record_and_harmless_in_every_view(batch):
    kinds = (nn.Linear(3, 2), nn.LayerNorm(3)) * 3  # equal neighbours would share one line
    model = nn.ModuleDict(dict(zip(HOSTILE, map(copy.deepcopy, kinds), strict=True)))
    with wb.graph(model):
        loss = sum(module(batch[0]).sum() for module in model.values())
    view = wb.graph(loss)
    assert {m.path for m in view.record.modules} >= set(HOSTILE)
    bundle, _ = view._repr_mimebundle_()
    html, text = bundle["text/html"], bundle["text/plain"]
    assert "<script" not in html
    picture = base64.b64decode(html.split("base64,", 1)[1].split('"', 1)[0]).decode()
    assert "<script" not in picture
    assert "&lt;scri" in picture
    assert len(html) < 40_000
    assert "\x1b" not in text
    assert "\x1b" not in html + picture
    assert max(map(len, text.splitlines())) < 400
    view.figure().savefig(sys.modules["io"].BytesIO(), format="png")
    assert GraphView(type(view.record).from_bytes(view.record.to_bytes())).record.nodes
