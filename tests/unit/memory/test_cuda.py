"""What can be tested of CUDA recording without a GPU; the rest is in ``tests/gpu``."""

from __future__ import annotations

import torch

from workbench.memory.attribution import Line
from workbench.memory.blocks import Block
from workbench.memory.cuda import AllocatorHistory, describe_blocks


def block(address: int, start: int, time_us: int, **said: str) -> Block:
    made = Block(512, "cuda:0", address)
    made.start, made.started_ns = start, time_us * 1000
    for name, value in said.items():
        setattr(made, name, value)
    return made


def test_a_storage_describes_the_block_allocated_last_before_it_was_seen():
    allocator = [block(0, 0, 1_000), block(0, 4, 5_000), block(512, 5, 6_000)]
    storage = block(0, 2, 5_010, op="aten.mm", module="head", category="gradients")
    storage.line = Line("train.py", 3, "step")
    describe_blocks(allocator, [storage])
    assert [b.op for b in allocator] == ["", "aten.mm", ""]
    assert (allocator[1].module, allocator[1].category) == ("head", "gradients")
    assert allocator[1].line == ("train.py", 3, "step")


def test_what_was_there_before_describes_the_first_block_at_its_address():
    before = block(0, -1, 0)
    later = block(0, 3, 4_000)
    parameter = block(0, -1, 0, name="weight", category="parameters")
    describe_blocks([later, before], [parameter])
    assert (before.name, later.name) == ("weight", "")


def test_without_cuda_there_is_no_history():
    if torch.cuda.is_available():
        return
    history = AllocatorHistory()
    history.start()
    assert not history.started
    assert history.stop("cpu") is None
