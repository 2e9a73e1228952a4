"""``ask``: a question about a captured memory record (see `workbench.memory.simulation.questions`).

An answer runs a simulated allocator through the whole recording, which takes from milliseconds to
seconds; it is computed in the background (`workbench.panel.channel.background_work`). If it is
about another batch size, the capture first learns how its blocks grow with the batch, and is stored
with that growth. This waits for the current step to end, for `LONGEST_WAIT_S` at most: after that
the answer is an interval that is derived from the record alone.

Questions about one experiment are answered one after another, and do not wait for those about
others. A question that waits for its turn does not hold the experiment: once that is deleted, the
answer is derived from the record alone.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.runtime.step_boundary import LONGEST_WAIT_S
from workbench.memory.simulation.questions import has_other_batch
from workbench.panel.channel.background_work import Task
from workbench.panel.channel.commands import CommandError
from workbench.panel.channel.questions import Answer, held

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import MemoryRecord

_turns: weakref.WeakKeyDictionary[Experiment, threading.Lock] = weakref.WeakKeyDictionary()
"""Lock of each experiment that was asked about; accessed only by the hub's thread."""


def ask(experiment: Experiment, args: Mapping[str, Any]) -> Task:
    """Read the arguments of an ``ask`` command: ``capture`` and ``question``.

    Raises:
        CommandError: the capture is no longer held, is not of memory, or there is no question.
    """
    info, question = held(experiment, args), args.get("question")
    if info.kind != "memory":
        raise CommandError(f"a {info.kind} answers no questions; a memory capture does")
    if not isinstance(question, dict):
        raise CommandError("question must be an object, as the memory view sends it")
    record = cast("MemoryRecord", experiment.captures.get(info.id))
    asked, about = cast("dict[str, Any]", question), weakref.ref(experiment)

    def make() -> Answer:
        from workbench.memory.simulation.questions import answer

        known, alive = record, about()
        if alive is not None and has_other_batch(record, asked):
            known = _grown(alive, info.id, record)
        del alive
        return Answer("answer", None, {"capture": info.id, "answer": answer(known, asked)})

    return Task(make, _turns.setdefault(experiment, threading.Lock()))


def _grown(experiment: Experiment, capture: str, record: MemoryRecord) -> MemoryRecord:
    """Return the capture with its growth; anything else it has learned meanwhile is kept."""
    from workbench.memory.prediction.batch_growth_capture import with_determined_growth

    found = with_determined_growth(experiment, record, wait_s=LONGEST_WAIT_S)
    if found is not record:
        with suppress(KeyError):  # released meanwhile
            held = cast("MemoryRecord", experiment.captures.get(capture))
            experiment.captures.replace(
                capture, dataclasses.replace(held, block_growth=found.block_growth)
            )
    return found
