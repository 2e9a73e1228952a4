"""A gradient flow on screen: interactive where widgets run, a picture and text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.display import mime_bundle
from workbench.gradient_flow.figure import flow_figure
from workbench.gradient_flow.log import gradient_flow as _record_of
from workbench.gradient_flow.svg import flow_svg
from workbench.html import fill, markup
from workbench.records import NOT_MEASURED
from workbench.records.file import RECORD, suffix_of
from workbench.trust import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.experiment import Experiment
    from workbench.records import GradientFlow

_MAX_LABEL = 40
_PICTURES = (".png", ".pdf", ".svg")

_STATIC = (
    '<div style="overflow-x:auto">{{ picture }}</div>'
    "{% for note in notes %}<p>{{ note[:400] }}</p>{% endfor %}"
)


def gradient_flow(experiment: Experiment) -> GradientFlow:
    """The gradient norm of every module at every sampled step of ``experiment`` so far.

    Up to ten steps per second are sampled during training; this function only reads them, at any
    time.

    Returns:
        A record of plain data; ``record.matrix()`` is ``float32 [num_rows, num_steps]``.
    """
    return _record_of(experiment)


class GradientFlowView:
    """A gradient flow for display, with ``.record``, ``.save(path)`` and ``.figure()``."""

    def __init__(self, record: GradientFlow) -> None:
        self.record = record

    def save(self, path: str | Path) -> Path:
        """Write the gradient flow in the format given by the suffix and return the path.

        ``.safetensors`` is the record, which ``wb.open(path)`` opens again; ``.txt`` is the table;
        ``.svg``, ``.png`` and ``.pdf`` are the figure.

        Raises:
            ValueError: the suffix is another one; the message lists the known suffixes.
        """
        target = Path(path).expanduser()
        suffix = suffix_of(target.name, (RECORD, ".txt", *_PICTURES), "gradient flow")
        if suffix == RECORD:
            return self.record.save(target)
        if suffix in _PICTURES:
            self.figure().savefig(target)
        else:
            target.write_text(f"{self}\n", encoding="utf-8")
        return target

    def figure(self) -> Figure:
        """The heat map as a matplotlib figure."""
        return flow_figure(self.record)

    def __str__(self) -> str:
        return describe_flow(self.record)

    def __repr__(self) -> str:
        return str(self).partition("\n")[0]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; only the last two where no widget can run."""
        return mime_bundle(
            "flow",
            {"record": self.record.to_bytes(), "error": ""},
            text=str(self),
            html=fill(_STATIC, picture=markup(flow_svg(self.record)), notes=self.record.notes),
            options=options,
        )


def describe_flow(record: GradientFlow) -> str:
    """A heading and a table with one line per module: norms over all sampled steps."""
    title = " ".join(record.title.split())[:120]
    count = len(record.step)
    if not count:
        return f"{title}: no step sampled yet."
    steps = f"steps {record.step[0]} to {record.step[-1]}, {count} of them"
    thinned = record.total_sampled - count
    more = f" ({thinned} more were thinned out)" if thinned else ""
    heads = ("module", "first", "median", "largest", "last", "no gradient", "not finite")
    lines = [
        _line(row.label, norms) for row, norms in zip(record.rows, record.matrix(), strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    text = [f"{title}: L2 norm of all parameter gradients of a module, {steps}{more}"]
    for cells in (heads, *lines):
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        text.append("  ".join([first, *others]).rstrip())
    return "\n".join([*text, *(f"note: {note}" for note in record.notes)])


def _line(label: str, norms: Any) -> tuple[str, ...]:
    measured = norms[norms != NOT_MEASURED]
    missing = int(np.isnan(measured).sum())
    infinite = int(np.isposinf(measured).sum())
    fine = measured[np.isfinite(measured)]
    name = printable(label[:1000])
    return (
        name if len(name) <= _MAX_LABEL else f"{name[:12]}…{name[-_MAX_LABEL + 13 :]}",
        _number(measured[0]),
        _number(np.median(fine)) if fine.size else "–",
        _number(fine.max()) if fine.size else "–",
        _number(measured[-1]),
        f"{missing} of {len(measured)}" if missing else "–",
        str(infinite) if infinite else "–",
    )


def _number(value: float) -> str:
    if np.isnan(value):
        return "none"
    return f"{value:.3g}".replace("-", "−") if np.isfinite(value) else "not finite"
