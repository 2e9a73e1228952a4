"""Random number generators that the user created: read, compared, written and recreated."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch

KINDS = (
    *(np.random.Generator, np.random.RandomState, np.random.BitGenerator),
    *(random.Random, torch.Generator),
)


def is_generator(value: Any) -> bool:
    """Return whether ``value`` is a generator whose numbers can be reproduced."""
    return isinstance(value, KINDS) and not isinstance(value, random.SystemRandom)


def is_of_process(value: Any) -> bool:
    """Return whether ``value`` is one of the three global generators of the process."""
    numpys: Any = np.random.rand
    pythons: Any = random.random
    return any(value is one for one in (torch.default_generator, numpys.__self__, pythons.__self__))


def state_of(one: Any) -> Any:
    """Return the state of a generator, for `set_state`; it can be pickled, and does not change."""
    if isinstance(one, np.random.Generator):
        return cast("Any", one.bit_generator).state
    if isinstance(one, np.random.BitGenerator):
        return cast("Any", one).state
    if isinstance(one, np.random.RandomState):
        return cast("Any", one).get_state(legacy=False)
    return one.getstate() if isinstance(one, random.Random) else one.get_state()


def set_state(one: Any, state: Any) -> None:
    """Set a generator to a state that `state_of` returned for it, or for one of the same kind."""
    if isinstance(one, np.random.Generator):
        cast("Any", one.bit_generator).state = state
    elif isinstance(one, np.random.BitGenerator):
        cast("Any", one).state = state
    elif isinstance(one, random.Random):
        one.setstate(state)
    else:
        one.set_state(state)


def comparable(state: Any) -> Any:
    """Return a state from `state_of` without its memory address: equal states pickle alike."""
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else state


def made_with(one: Any) -> tuple[str, str]:
    """Return the arguments with which `made` creates another generator of the same kind."""
    if isinstance(one, torch.Generator):
        return "torch", str(one.device)
    if isinstance(one, random.Random):
        return "python", "" if type(one) is random.Random else type(one).__qualname__
    kind = type(one).__name__ if type(one) in KINDS[:2] else ""
    bits = one if isinstance(one, np.random.BitGenerator) else bits_of(one)
    return f"numpy {kind}", type(bits).__name__


def made(kind: str, of: str) -> Any:
    """Create a generator of the kind that `made_with` reported.

    Raises:
        ValueError: it is of a user-defined class.
    """
    library, _, name = kind.partition(" ")
    if library == "torch":
        return torch.Generator(of)
    if library == "python" and not of:
        return random.Random()  # noqa: S311 - it continues from another one's state
    bits = getattr(np.random, of, None) if library == "numpy" else None
    if bits is None:
        raise ValueError(f"no generator of class {of} can be made here")
    return getattr(np.random, name)(bits()) if name else bits()


def bits_of(one: Any) -> Any:
    """Return the bit generator of a NumPy generator."""
    return one.bit_generator if isinstance(one, np.random.Generator) else one._bit_generator
