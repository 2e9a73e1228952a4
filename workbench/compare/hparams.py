"""A comparison in TensorBoard's HPARAMS tab: one run for each variant."""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.records.compare import ComparedArm, CompareRecord

log = logging.getLogger("workbench")


def write_hparams(record: CompareRecord, name: str, folder: Path, rate: float | None) -> None:
    """Write every variant of the model ``name`` as a run in ``folder``; an error is only logged."""
    variants = [
        variant
        for variant in record.arms
        if variant.model in ("", name) and not math.isnan(variant.step_s)
    ]
    try:
        for variant in variants:
            name = variant.modes.replace(":", "-").replace(",", "-")
            _write(variant, _unused(folder / name), record, rate)
    except Exception as error:  # noqa: BLE001 - the measurements are worth more than their copy
        log.warning("nothing of the comparison was written for TensorBoard: %s", error)


def _unused(path: Path) -> Path:
    """Return ``path``, or the first of ``path-2``, ``path-3``, ... that does not exist."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return path if not path.exists() else next(one for one in numbered if not one.exists())


def _write(variant: ComparedArm, folder: Path, record: CompareRecord, rate: float | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TensorFlow, which is not needed
        from torch.utils.tensorboard.writer import SummaryWriter
    hyperparameters: dict[str, str | float] = {
        "modes": variant.modes,
        "ranks": float(variant.ranks),
        "device": record.device,
        **({} if rate is None else {"learning_rate": rate}),
    }
    measured = {
        "compare/step_ms": variant.step_s * 1e3,
        "compare/speedup": variant.speedup,
        "compare/samples_per_s": variant.samples_per_s,
        "compare/first_step_s": variant.first_step_s,
        "compare/peak_mib": variant.peak_bytes / 2**20,
        "compare/max_delta_logit": variant.delta_logit,
        "compare/agreement": variant.agreement,
    }
    known = {key: value for key, value in measured.items() if math.isfinite(value)}
    with SummaryWriter(str(folder)) as writer:
        writer.add_hparams(hyperparameters, known, run_name=".")
