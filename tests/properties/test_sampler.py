"""The order of samples is a pure function of (seed, epoch, index)."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from workbench.experiment import EpochSampler
from workbench.experiment.data.data import data_source, split
from workbench.experiment.data.sampler import mix

counts = st.integers(1, 200)
seeds = st.integers(0, 2**63 - 1)
epochs = st.integers(0, 10**6)


@given(counts, seeds, epochs)
def test_every_sample_once_and_the_global_state_untouched(n: int, seed: int, epoch: int) -> None:
    before = torch.get_rng_state()
    sampler = EpochSampler(n, seed)
    sampler.set_epoch(epoch)
    assert sorted(sampler) == list(range(n))
    assert torch.equal(before, torch.get_rng_state())


@given(counts, seeds, epochs, st.integers(0, 200))
def test_the_past_does_not_matter(n: int, seed: int, epoch: int, skipped: int) -> None:
    fresh, used = EpochSampler(n, seed), EpochSampler(n, seed)
    list(used)
    used.set_epoch(epoch + 1)
    list(used)
    for sampler in (fresh, used):
        sampler.set_epoch(epoch)
    assert list(fresh) == list(used)
    used.set_epoch(epoch, start=min(skipped, n))
    assert list(used) == list(fresh)[min(skipped, n) :]
    assert len(used) == len(list(used))


@given(seeds, epochs)
def test_epochs_and_seeds_differ(seed: int, epoch: int) -> None:
    keys = {mix(seed, epoch), mix(seed, epoch + 1), mix(seed ^ 1, epoch), mix(seed, epoch, 1)}
    assert len(keys) == 4
    assert all(0 <= key < 2**63 for key in keys)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 17),
    seed=st.integers(0, 1000),
    epoch=st.integers(0, 5),
    start=st.integers(0, 10),
    drop_last=st.booleans(),
)
def test_arrays_datasets_and_loaders_give_the_same_batches_from_any_position(
    n: int, batch_size: int, seed: int, epoch: int, start: int, drop_last: bool
) -> None:
    pair = (torch.arange(n), torch.arange(n) * 10)
    loader = DataLoader(TensorDataset(*pair), batch_size, shuffle=True, drop_last=drop_last)
    options = {"batch_size": batch_size, "seed": seed, "shuffle": True}
    full = n // batch_size if drop_last else -(-n // batch_size)
    if full == 0:
        return
    of_arrays = [split(b) for b in data_source(pair, **options).batches(epoch)][:full]
    source = data_source(loader, **options)
    of_loader = [split(b) for b in source.batches(epoch, min(start, full))]
    assert len(of_loader) == full - min(start, full)
    for (x, y), (u, v) in zip(of_arrays[min(start, full) :], of_loader, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
        assert torch.equal(y, x * 10)
