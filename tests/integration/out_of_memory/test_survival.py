"""A run that ran out of memory lives on: what it keeps, lets go of and says."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.out_of_memory.support import MIB, experiment, refused
from workbench.allocator.cards import CONTEXT_BYTES
from workbench.memory import memory
from workbench.memory.cards.card_player import PlayedCard


def test_nothing_of_the_failed_step_or_of_the_trials_is_kept(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "transformer")
    exp.card = CONTEXT_BYTES + 10 * MIB
    raised: list[BaseException] = []
    try:
        exp.run(epochs=1, wait=True)
    except torch.OutOfMemoryError as error:
        raised.append(error)  # as a notebook keeps the last one
    assert raised
    gc.collect()
    card = exp._training.card
    assert isinstance(card, PlayedCard)
    card.ledger.next_step()
    own = sum(p.nbytes for p in exp.model.parameters())
    assert card.ledger.allocated < 4 * own + MIB, "weights, gradients, moments at most"
    assert not [thread for thread in threading.enumerate() if "workbench" in thread.name]
    exp.close()


def test_the_memory_of_the_experiment_is_that_of_the_failed_step(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    kept = refused(exp, 48 * MIB)
    num_captures = len(exp.captures.infos())
    shown = memory(exp).record
    assert (shown.title, shown.remedies) == (kept.title, kept.remedies)
    assert len(shown.oom_event) == 1
    assert len(exp.captures.infos()) == num_captures
    assert exp.status == "exception"
    exp.batch_size = 8
    later = memory(exp).record
    assert len(later.oom_event) == 0, "what would come next is another step now"
    assert later.batch_size == 8
    assert exp.status == "paused"
    exp.close()


def test_the_error_itself_says_what_would_help(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    exp.card = CONTEXT_BYTES + 48 * MIB
    with pytest.raises(torch.OutOfMemoryError) as raised:
        exp.run(epochs=1, wait=True)
    notes = "\n".join(getattr(raised.value, "__notes__", ()))
    assert exp.failure is not None
    first = exp.failure.remedies[0]
    assert first.name in notes
    assert first.code.splitlines()[0] in notes
    assert "exp.resume()" in notes
    exp.close()


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (0, ValueError, "CUDA itself takes about 512 MiB"),
        (-5, ValueError, "CUDA itself takes about 512 MiB"),
        ("0 GiB", ValueError, "CUDA itself takes about 512 MiB"),
        ("RTX 9999", ValueError, "known are T4, RTX A4000"),
        ("", ValueError, "or give an amount such as '8 GiB'"),
        (8.5, TypeError, "a name, an amount such as '8 GiB' or bytes, got float"),
        (True, TypeError, "got bool"),
        (CONTEXT_BYTES + 4096, ValueError, "choose a larger card"),
        ("8 GiB, expandable_segments:Perhaps", ValueError, "cannot be 'Perhaps'"),
        ("8 GiB, max_split_size_mb:1", ValueError, "at least 20 MiB"),
    ],
)
def test_a_card_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, bad: Any, error: type[Exception], said: str
) -> None:
    exp = experiment(tmp_path, "transformer")
    with pytest.raises(error, match=said):
        exp.card = bad
    assert exp.card is None
    exp.step(1).wait(60)
    assert exp.status == "paused"
    exp.close()
