"""Long-running work for a browser (`workbench.memory.background_thread`): pictures, simulations.

The result is passed back to the hub, the only sender. Work of one kind, or of one kind for one
experiment, is done one task at a time. A task holds a record and not the experiment, so that a
deleted experiment is freed while the task waits for its turn; work that needs the experiment checks
that it still exists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.memory.background_thread import run_in_background
from workbench.panel.channel.questions import Answer


@dataclass(frozen=True)
class Task:
    """A piece of work; whatever can be rejected immediately has been rejected before."""

    make: Callable[[], Answer | None]
    turn: threading.Lock
    """Held while the work is done: tasks that share it run one at a time."""


@dataclass(frozen=True)
class Done:
    """The outcome of a `Task`: the message to send before the reply, or a one-sentence error."""

    client: str
    request: object
    """Id of the command that requested it."""
    experiment: str
    """Id of the experiment that the command is about."""
    answer: Answer | None
    error: str


def start(
    task: Task, client: str, request: object, experiment: str, done: Callable[[Done], None]
) -> None:
    """Do the work on a thread of its own; ``done`` is called there once, whatever happens."""

    def over(answer: Answer | None, error: str) -> None:
        done(Done(client, request, experiment, answer, error))

    run_in_background(task.make, task.turn, over)
