"""GPUs, and how much memory of each a program can use.

A driver makes less memory available than the nominal size of a GPU. The totals are those that
PyTorch reported to programs ("has a total capacity of ... GiB") and are accurate to some tenths of
a GiB: they differ with driver, error correction and board. Of the total, a process spends a CUDA
context before the allocator gets its first byte; reports that list both leave 0.13 GiB (T4) to 0.49
GiB (A100, RTX 4090) for it and for libraries, so `CONTEXT_BYTES` is near their upper end.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.allocator.simulator.settings import GIB, MIB

CONTEXT_BYTES = 512 * MIB
"""Assumed for the context and for what libraries allocate outside the allocator."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, described by its memory."""

    name: str
    total_bytes: int
    """What CUDA reports."""
    source: str
    """Where that was reported."""

    @property
    def usable_bytes(self) -> int:
        """What is left for the allocator."""
        return self.total_bytes - CONTEXT_BYTES


GPUS = (
    Gpu("T4", int(14.56 * GIB), "Zheng-Chong/CatVTON#133"),
    Gpu("RTX A4000", int(15.61 * GIB), "DengKaiCQ/VGGT-Long#6"),
    Gpu("RTX 4090", int(23.64 * GIB), "ali-vilab/VGen#104"),
    Gpu("V100 32 GB", int(31.75 * GIB), "google/dynibar#8"),
    Gpu("A100 40 GB", int(39.50 * GIB), "TianheWu/CoSeR#10"),
    Gpu("L40", int(44.40 * GIB), "QwenLM/Qwen3-VL#2097"),
    Gpu("H100 80 GB", int(79.11 * GIB), "vllm-project/vllm#27508"),
    Gpu("A100 80 GB", int(79.25 * GIB), "HiDream-ai/VAREdit#6"),
)
"""From the smallest to the largest. ``source`` is an issue on GitHub."""


def gpu_named(name: str) -> Gpu:
    """Return the GPU of that name, ignoring case and spaces.

    Raises:
        ValueError: no GPU has that name.
    """
    for gpu in GPUS:
        if _plain(gpu.name) == _plain(name):
            return gpu
    known = ", ".join(gpu.name for gpu in GPUS)
    raise ValueError(f"no GPU is called {name!r}; known are {known}, or give its bytes")


def _plain(name: str) -> str:
    return "".join(name.split()).lower()
