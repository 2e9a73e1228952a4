"""A compile report on screen: interactive where widgets run, HTML and text everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.display import mime_bundle
from workbench.dynamo.render.figure import report_figure
from workbench.dynamo.render.html import phases_svg, report_html
from workbench.dynamo.render.text import describe, heading, summary
from workbench.records.file import RECORD, suffix_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records import CompiledKernel, CompileRecord

_PICTURES = (".png", ".pdf", ".svg")
MOST_CODE = 1_000_000
"""Maximum number of characters of generated code that a widget carries; if there is more, it
requests one kernel at a time."""


class CompileView:
    """What `workbench.compile_report` returns: ``.record``, ``.save(path)``, ``.figure()``.

    Args:
        record: returns the record to show; called each time it is shown, so that a report that is
            still being recorded is up to date.
    """

    def __init__(self, record: Callable[[], CompileRecord]) -> None:
        self._record = record

    @property
    def record(self) -> CompileRecord:
        """The record: plain data, no tensor and no compiled code."""
        return self._record()

    def kernels(self, region: str = "") -> tuple[CompiledKernel, ...]:
        """Return the kernels of all regions, or of those whose label or module path is ``region``.

        Raises:
            ValueError: there is no such region; the message lists the existing ones.
        """
        record = self.record
        if not region:
            return record.kernels
        rows = {
            row
            for row, one in enumerate(record.regions)
            if region in (one.label, one.cls, *one.paths)
        }
        if not rows:
            valid = ", ".join(one.label for one in record.regions) or "none"
            raise ValueError(f"no region {region!r} was compiled; regions are: {valid}")
        return tuple(k for k in record.kernels if record.compilation_region[k.compilation] in rows)

    def source(self, kernel: str) -> str:
        """Return the generated source (C++ or Triton) of the newest kernel with this name.

        Raises:
            ValueError: there is no kernel of that name with source; the message lists the names.
        """
        found = [one for one in self.record.kernels if one.name == kernel and one.code]
        if found:
            return found[-1].code
        names = sorted({one.name for one in self.record.kernels if one.code})
        valid = ", ".join(names) or "none"
        raise ValueError(f"no kernel {kernel!r} has source here; kernels are: {valid}")

    def save(self, path: str | Path) -> Path:
        """Write the report in the format that the suffix names; returns the path.

        ``.safetensors`` is the record, which ``wb.open(path)`` opens again; ``.txt`` and ``.html``
        are the report to read; ``.svg``, ``.png`` and ``.pdf`` are the figure.

        Raises:
            ValueError: the suffix is not supported; the message lists those that are.
        """
        target = Path(path).expanduser()
        known = (RECORD, ".txt", ".html", *_PICTURES)
        suffix = suffix_of(target.name, known, "a compile report")
        record = self.record
        if suffix == RECORD:
            return record.save(target)
        if suffix in _PICTURES:
            report_figure(record).savefig(target)
        else:
            text = describe(record) + "\n" if suffix == ".txt" else report_html(record)
            target.write_text(text, encoding="utf-8")
        return target

    def figure(self) -> Figure:
        """Return compile time by region and phase, as a matplotlib figure."""
        return report_figure(self.record)

    def svg(self) -> str:
        """Return the time by phase as one bar."""
        return phases_svg(self.record)

    def __str__(self) -> str:
        return describe(self.record)

    def __repr__(self) -> str:
        record = self.record
        return f"{heading(record)}: {summary(record)}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return widget, static HTML and text; only the last two where no widget can run."""
        record = self.record
        return mime_bundle(
            "compile",
            {"record": carried(record).to_bytes(), "error": ""},
            text=describe(record),
            html=report_html(record),
            options=options,
            on_message=giving_source(record),
        )


def carried(record: CompileRecord) -> CompileRecord:
    """Return ``record`` for a widget, without the kernels' code if that is long."""
    if sum(len(kernel.code) for kernel in record.kernels) <= MOST_CODE:
        return record
    return replace(record, kernels=tuple(replace(one, code="") for one in record.kernels))


def giving_source(record: CompileRecord) -> Callable[[Any, Any], None]:
    """Return what answers ``{"type": "ask", "id", "question": {"kind": "source", "kernel": row}}``.

    The answer is ``{"type": "answer", "id"}`` with ``"answer": {"code"}`` or one sentence as
    ``"error"``; `workbench.memory.widget_questions` uses the same protocol.
    """

    def received(widget: Any, content: Any) -> None:
        if not isinstance(content, dict):
            return
        message = cast("dict[str, Any]", content)
        if message.get("type") != "ask":
            return
        question: Any = message.get("question")
        row = question.get("kernel") if isinstance(question, dict) else None
        if isinstance(row, int) and 0 <= row < len(record.kernels):
            said: dict[str, Any] = {"answer": {"code": record.kernels[row].code}}
        else:
            count = len(record.kernels)
            said = {"error": f"there is no kernel {row!r} among the {count} of this report"}
        widget.send({"type": "answer", "id": message.get("id"), **said})

    return received
