"""Two captures, and what checkpointing each of their modules would free, for the browser's tests.

The browser estimates by the same rule as `workbench.graph.questions.checkpoint_savings`, whose
figures are equal to measured ones (``test_checkpointing.py``). ``python -m
tests.unit.graph.checkpoint_fixtures`` writes them anew after a change of the record.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F

import workbench as wb
from tests.unit.graph.questions.test_checkpoint_savings import conv_net, transformer
from workbench.graph.questions.checkpoint_savings import checkpoint_saving
from workbench.records import GraphRecord

FOLDER = Path(__file__).parents[3] / "extensions" / "views" / "test" / "fixtures"
NAMES = ("conv_net", "transformer")


def freed(record: GraphRecord) -> dict[str, int]:
    """Bytes that checkpointing a module would free, by its path."""
    paths = [module.path for module in record.modules if module.cls]
    return {path: checkpoint_saving(record, path).freed_bytes for path in paths}


def main() -> None:
    """Write a record and its figures for each model."""
    FOLDER.mkdir(exist_ok=True)
    for name, build in zip(NAMES, (conv_net, transformer), strict=True):
        torch.manual_seed(0)
        model, x = build()
        with wb.graph(model):
            loss = F.cross_entropy(model(x), torch.arange(4))
        record = wb.graph(loss).record
        (FOLDER / f"checkpoint-{name}.safetensors").write_bytes(record.to_bytes())
        figures = json.dumps(freed(record), indent=2) + "\n"
        (FOLDER / f"checkpoint-{name}.json").write_text(figures)


if __name__ == "__main__":
    main()
