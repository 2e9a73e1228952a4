"""How much gradient reached every module over the steps of a training, for the heat strip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from workbench.records.base import F32, I64, Record
from workbench.records.rules import Least, Length

NOT_MEASURED = -1.0
"""In `GradientFlow.norm`: the row was no part of the model then, or nothing in it could be trained.
"""


@dataclass(frozen=True, kw_only=True)
class FlowRow:
    """One row of the strip: a module, or a range of neighbours in a long list of modules."""

    path: str
    """Qualified name of the module (``encoder.layer.3``), of the first one of a range; ``""`` is
    the model."""
    label: str
    """What is written next to the row: the path, with the class where that is a bare number;
    ``encoder.layer.0–3`` for a range; the names of the parameters for those that a module holds
    in addition to its submodules."""
    cls: str
    """Class of the module; empty for neighbours of different classes."""
    num_modules: Annotated[int, Least(1)]
    """1, or how many neighbours the row stands for."""
    num_parameters: Annotated[int, Least(0)]
    """Trainable parameter tensors counted in this row, and in no other."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GradientFlow(Record):
    """Gradient norms of modules (rows) at sampled steps (columns), in the order of the steps.

    At most ten steps a second are sampled. When there are too many, old ones are thinned out and
    the newest stay, so the distance between columns varies.
    """

    schema: ClassVar[str] = "workbench.gradient_flow/1"

    title: str
    model: str
    """Class name of the model at the last column."""
    experiment: str | None
    """Id of the experiment."""
    device: str
    recorded_at: float
    """Unix time of the last column, seconds; 0 where there is none."""
    total_sampled: Annotated[int, Least(0)]
    """Steps that were sampled, those that were thinned out since included."""
    notes: tuple[str, ...]
    rows: tuple[FlowRow, ...]
    """In the order of ``named_modules``; rows of a model that was swapped in come after."""
    step: Annotated[I64, Least(0)]
    """The sampled steps, counted from 1. A step whose update was refused (a gradient was not
    finite) appears next to the one that replaced it: equal numbers may follow each other."""
    norm: Annotated[F32, Length("rows", "step")]
    """Flattened ``[num_rows, num_columns]``: L2 norm of all parameter gradients of the row, before
    clipping and without a loss scale. NaN: it got no gradient, its module did not run (or did not
    count). Infinity: a gradient was not finite. `NOT_MEASURED` (-1): it was no part of the model
    then, or it was frozen."""

    def matrix(self) -> npt.NDArray[np.float32]:
        """``norm`` as ``[num_rows, num_columns]``.

        Raises:
            ValueError: the columns do not fit each other; the record is damaged.
        """
        shape = (len(self.rows), len(self.step))
        if self.norm.size != shape[0] * shape[1]:
            raise ValueError(
                f"a gradient flow of {shape[0]} rows and {shape[1]} steps needs "
                f"{shape[0] * shape[1]} norms, got {self.norm.size}"
            )
        return self.norm.reshape(shape)
