"""The order of samples: a pure function of (seed, epoch, index).

Nothing is remembered between epochs and the global random state is never touched, so a resume needs
one counter, and the number of workers or ranks does not change what is seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

_MASK = (1 << 64) - 1


def mix(seed: int, epoch: int, stream: int = 0) -> int:
    """Mix three numbers into one 63-bit seed; neighbouring inputs give unrelated outputs.

    The finaliser is SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014).
    """
    state = seed & _MASK
    for part in (epoch, stream):
        state = (state + 0x9E3779B97F4A7C15 * (2 * part + 1)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


class EpochSampler(Sampler[int]):
    """Sample indices of one epoch, in the order an `Experiment` sees them.

    A hand-written loop that uses it, with ``sampler.set_epoch(epoch)`` before each epoch, counting
    from 0, sees the same batches. It also draws the same random numbers if its loader has a
    generator of its own, since it would otherwise take a number per epoch from torch's global one:
    ``DataLoader(data, 64, sampler=sampler, generator=torch.Generator())``. Samples that draw in
    workers draw the same numbers if that generator is seeded with `worker_seed` before each epoch.
    """

    def __init__(self, num_samples: int, seed: int = 0, *, shuffle: bool = True) -> None:
        self.num_samples = num_samples
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch (from 0) and how many of its samples to skip."""
        self.epoch = epoch
        self.start = start

    @property
    def worker_seed(self) -> int:
        """Seed of a loader's generator for the epoch; the generator seeds the workers.

        An epoch that is resumed in the middle has another seed: its workers start again, and would
        otherwise draw for its batches what they drew for its first ones.
        """
        found = mix(self.seed, self.epoch, stream=1)
        return mix(found, self.start, stream=1) if self.start else found

    def indices(self) -> torch.Tensor:
        """Return the indices of the whole epoch, ``[num_samples]`` int64."""
        if not self.shuffle:
            return torch.arange(self.num_samples, device="cpu")
        generator = torch.Generator("cpu").manual_seed(mix(self.seed, self.epoch))
        # a default device would not be that of the generator
        return torch.randperm(self.num_samples, generator=generator, device="cpu")

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices()[self.start :].tolist())

    def __len__(self) -> int:
        return max(0, self.num_samples - self.start)
