"""What the generator writes for each kind of annotation, and when it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from workbench.records import Badge, SourceLine
from workbench.records.base import F32, I64
from workbench.records.panel import Status
from workbench.records.twin import typescript_type
from workbench.records.typescript import generate, main, record_classes


@pytest.mark.parametrize(
    ("hint", "twin"),
    [
        (int, "number"),
        (str, "string"),
        (bool, "boolean"),
        (float | None, "number | null"),
        (I64, "Float64Array"),
        (F32, "Float32Array"),
        (Status, "Status"),
        (Literal["a", "it's"], "'a' | 'it\\'s'"),
        (tuple[SourceLine, ...], "ReadonlyArray<SourceLine>"),
        (SourceLine | None, "SourceLine | null"),
        (Badge, "Badge"),
    ],
    ids=str,
)
def test_every_annotation_has_one_twin(hint: object, twin: str) -> None:
    assert typescript_type(hint) == twin


def test_an_annotation_without_a_twin_is_named() -> None:
    with pytest.raises(TypeError, match=r"no TypeScript twin.*set\[int\]"):
        typescript_type(set[int])


def test_docstrings_become_comments_above_their_field() -> None:
    text = "\n".join(generate().values())
    assert "/** Medians, spreads, counts: the numbers behind line 1. */\n  readonly tooltip" in text
    assert "readonly node_sequence: Float64Array;" in text
    assert "export const NODE_KINDS = ['operation'" in text


def test_every_public_record_has_a_twin() -> None:
    text = "\n".join(generate().values())
    for cls in record_classes():
        assert f"export interface {cls.__name__} " in text


def test_check_tells_a_file_that_is_out_of_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "generated"
    assert main(["--check", "--target", str(target)]) == 1
    assert "run `python -m workbench.records.typescript`" in capsys.readouterr().err
    assert main(["--target", str(target)]) == 0
    assert main(["--check", "--target", str(target)]) == 0
    graph = target / "graph.ts"
    graph.write_text(graph.read_text().replace("readonly step: number", "readonly stop: number"))
    assert main(["--check", "--target", str(target)]) == 1
    (target / "left_over.ts").write_text("")
    assert main(["--target", str(target)]) == 0
    assert not (target / "left_over.ts").exists()


def test_the_words_of_a_field_say_its_type_and_its_rules() -> None:
    words = generate()["fields.ts"]
    assert "type: 'I32 @strings'," in words
    assert "parent: 'int @modules?<'," in words
    assert "to: 'I32 @node >edge_from'," in words
    assert "reason: 'frozen|unused|detached|no_grad|not_differentiable|off_path'," in words
    assert "'non_finite?': NON_FINITE," in words
    assert "phases: [PHASE, '@event+']," in words
    assert "bytes: 'F32 =num_points*7'," in words


def test_a_record_that_adds_columns_names_only_those_it_adds() -> None:
    words = generate()["fields.ts"].partition("const GRAPH_DIFF")[2]
    assert "...GRAPH_RECORD.columns['node']," in words
    assert "type: 'I32 @strings'" not in words
    assert "state: 'U8 @4'," in words
