"""What is on a box of the static picture, and what it is called."""

import pytest
import torch
from torch import nn

import workbench as wb
from workbench.graph.render.layout import MAX_BOXES, layout


class Layered(nn.Module):
    """Blocks, with something of the model's own after some of them."""

    def __init__(self, block, num_blocks, between):
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(num_blocks))
        self.exit, self.head = nn.Linear(4, 3), nn.Linear(4, 3)
        self.between = between

    def forward(self, x):
        losses = []
        for number, block in enumerate(self.blocks):
            x = block(x)
            if self.between == "exit" and number == 0:
                losses.append(self.exit(x).sum())
            if self.between == "relu":
                x = x.relu()
        return sum([*losses, self.head(x).sum()])


def linked_labels(model):
    with wb.graph(model):
        loss = model(torch.randn(2, 4))
    placed = layout(wb.graph(loss).record)
    labels = [box.label for box in placed.boxes]
    return labels, {(labels[link.start], labels[link.end]) for link in placed.links}


@pytest.mark.parametrize(
    "block",
    [lambda: nn.Linear(4, 4), lambda: nn.TransformerEncoderLayer(4, 1)],
    ids=["linear", "transformer"],
)
def test_an_early_exit_leaves_where_it_does(block):
    torch.manual_seed(0)
    labels, links = linked_labels(Layered(block, 5, "exit"))
    rest = next(label for label in labels if "× 4" in label)
    assert rest.startswith("blocks.1…4")
    assert any(
        start.startswith("blocks.0") or start == "add" for start, end in links if end == "exit"
    )
    assert (rest, "head") in links
    assert (rest, "exit") not in links


def test_a_box_is_named_by_what_is_in_it():
    labels, _ = linked_labels(Layered(lambda: nn.Linear(4, 4), 4, "relu"))
    assert [label for label in labels if label.startswith("blocks")] == [
        f"blocks.{number}" for number in range(4)
    ]
    labels, _ = linked_labels(Layered(lambda: nn.Linear(4, 4), 40, "relu"))
    assert len(labels) <= MAX_BOXES + 2


def test_blocks_in_a_loop_of_their_own_stay_one_box():
    class Again(Layered):
        def forward(self, x):
            for _ in range(6):
                for block in self.blocks:
                    x = block(x)
                x = x * 2
            return self.head(x).sum()

    labels, _ = linked_labels(Again(lambda: nn.Linear(4, 4), 4, ""))
    assert labels.count("blocks.0…3 × 4") == 1
