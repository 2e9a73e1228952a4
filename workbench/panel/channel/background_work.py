"""Work for a browser that takes its time (`workbench.memory.aside`): pictures, simulations.

What was made goes back to the hub, which alone sends. Of a kind one thing is made at a time, or of
a kind and an experiment. A task holds a record and no experiment, so that a deleted one is freed
while it waits its turn; where its work needs one it looks whether that is still there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workbench.memory.aside import aside
from workbench.panel.channel.questions import Answer


@dataclass(frozen=True)
class Task:
    """What is to be made; what can be refused at once was refused before."""

    make: Callable[[], Answer | None]
    turn: threading.Lock
    """Held while it is made: of those that share it one at a time."""


@dataclass(frozen=True)
class Done:
    """What became of a `Task`: the message to send before the reply, or one sentence."""

    client: str
    request: object
    """Id of the command that asked."""
    experiment: str
    """Id of the experiment that it is about."""
    answer: Answer | None
    error: str


def start(
    task: Task, client: str, request: object, experiment: str, done: Callable[[Done], None]
) -> None:
    """Make it on a thread of its own; ``done`` is called there, once, whatever happens."""

    def over(answer: Answer | None, error: str) -> None:
        done(Done(client, request, experiment, answer, error))

    aside(task.make, task.turn, over)
