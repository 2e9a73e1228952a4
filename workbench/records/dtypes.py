"""Which operation computed in which element type: a step, or a block of code, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from workbench.records.base import I32, I64, U8, Record
from workbench.records.rules import Index, Least

DTYPE_PHASES = ("forward", "backward", "update")
"""When it ran; ``row_phase`` holds the index. What backward computes once more (checkpointing) is
``backward``."""

DTYPE_KINDS = ("computes", "casts", "compiled")
"""``casts``: it changes the type of its values and nothing else. ``compiled``: a region of compiled
code, of which nothing is known but where it is."""


@dataclass(frozen=True, kw_only=True)
class DtypeRow:
    """One row of a `DtypeRecord`, for reading in Python."""

    phase: str
    kind: str
    op: str
    """``aten.addmm``"""
    module: str
    """Path of the module that ran it, or whose forward it is the backward of; ``loss`` outside of
    every module, ``optimizer`` in an update, ``""`` where it is unknown."""
    takes: str
    gives: str
    computes: str
    """What it computes in; ``""`` where it is unknown."""
    emulated: bool
    """Whether the hardware has no such arithmetic, so that other types stand in for it."""
    calls: int
    elements: int
    flops: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DtypeRecord(Record):
    """Every operation that the dispatcher saw, added up by phase, operation, module and types.

    Types are those of floating-point and complex values; operations that give none (comparisons,
    ``argmax``) or take none are left out, and so is what computes nothing: views, copies, new
    tensors.
    """

    schema: ClassVar[str] = "workbench.dtypes/1"
    tables: ClassVar[tuple[str, ...]] = ("row",)

    title: str
    model: str
    """Class name; empty where there is no one model."""
    experiment: str | None
    step: int | None
    modes: str
    """``compile+bf16``; empty where no modes of Workbench are known."""
    device: str
    torch_version: str
    recorded_at: float
    """Unix time, seconds."""
    notes: tuple[str, ...]
    strings: tuple[str, ...]

    row_phase: Annotated[U8, Index(DTYPE_PHASES)]
    """Index into `DTYPE_PHASES`."""
    row_kind: Annotated[U8, Index(DTYPE_KINDS)]
    """Index into `DTYPE_KINDS`."""
    row_op: Annotated[I32, Index("strings")]
    row_module: Annotated[I32, Index("strings")]
    row_takes: Annotated[I32, Index("strings")]
    """``bfloat16, float32``: the types of its inputs, in the order of its arguments, each once."""
    row_gives: Annotated[I32, Index("strings")]
    row_computes: Annotated[I32, Index("strings")]
    """``bfloat16``; ``bfloat16 + float32`` where it takes or gives both; of a product what is
    multiplied: ``tf32`` for float32 values, ``float8_e4m3fn`` for values scaled to 8 bits. Empty
    where it is unknown."""
    row_emulated: Annotated[U8, Index(("no", "yes"))]
    row_calls: Annotated[I64, Least(0)]
    """0 where it is unknown."""
    row_elements: Annotated[I64, Least(0)]
    """Elements of the outputs of all calls."""
    row_flops: Annotated[I64, Least(0)]
    """Of products (matrices, convolutions, fused attention), by torch's own formulas; 0 for all
    else."""

    @property
    def rows(self) -> tuple[DtypeRow, ...]:
        """The rows as objects, in the order in which they first ran."""
        text = self.strings
        return tuple(
            DtypeRow(
                phase=DTYPE_PHASES[self.row_phase[row]],
                kind=DTYPE_KINDS[self.row_kind[row]],
                op=text[self.row_op[row]],
                module=text[self.row_module[row]],
                takes=text[self.row_takes[row]],
                gives=text[self.row_gives[row]],
                computes=text[self.row_computes[row]],
                emulated=bool(self.row_emulated[row]),
                calls=int(self.row_calls[row]),
                elements=int(self.row_elements[row]),
                flops=int(self.row_flops[row]),
            )
            for row in range(len(self.row_op))
        )
