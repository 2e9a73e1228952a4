"""The kernel's end of the live channels: executes commands and publishes what changed.

One hub serves every experiment and every browser view of a kernel. It holds experiments weakly, so
a deleted one is freed, and it has one daemon thread that exists only while a browser is connected.
Comm handlers only queue messages; the thread executes the commands and publishes at most ten times
a second, coalescing whatever happened in between.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.experiment.report.events import Closed, StatusChanged
from workbench.experiment.runtime import at_exit
from workbench.panel.channel import background_work, commands, state
from workbench.panel.channel.channel import PROTOCOL, Client, Sender, comm_sender, listen
from workbench.panel.channel.exports import export
from workbench.panel.channel.graph_comparison import compare
from workbench.panel.channel.memory_questions import ask
from workbench.panel.channel.publication import changes
from workbench.panel.channel.questions import QUESTIONS, Answer
from workbench.panel.channel.saved_runs import load_weights, resume_from

if TYPE_CHECKING:
    from workbench.experiment import Experiment

PERIOD_S = 0.1
"""Shortest time between two publications, in seconds."""
IDLE_S = 1.0
"""Longest sleep in seconds: elapsed-time figures such as "time left" advance without an event."""
ASLEEP_AFTER_S = 300.0
"""A view that has not been heard from for this many seconds is sent nothing until it sends a
message again: otherwise messages would be sent forever to pages that were closed without a
goodbye."""
_ENDING_S = 5.0
"""How many seconds the exit of the interpreter waits for messages that are being sent."""

TASKS = {
    "export": export,
    "ask": ask,
    "compare": compare,
    "resume_from": resume_from,
    "load_weights": load_weights,
}
"""Long-running commands, which are replied to when their work is done."""

log = logging.getLogger("workbench")


@dataclass(frozen=True)
class _Request:
    client: str
    message: dict[str, Any]


class Hub:
    """All experiments of this kernel, and all views that follow one."""

    def __init__(self) -> None:
        self._experiments: weakref.WeakValueDictionary[str, Experiment] = (
            weakref.WeakValueDictionary()
        )
        self._clients: dict[str, Client] = {}
        self._heard: dict[str, float] = {}
        self._requests: deque[_Request | background_work.Done] = deque()
        self._joined: deque[Client] = deque()
        self._removed: deque[str] = deque()
        self._dirty: set[str] = set()
        self._ended: dict[str, Experiment] = {}
        """Experiments whose run has just ended: held until views have been notified of the
        outcome."""
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._listening = False
        self._ending = False

    # -- what the kernel's side calls -------------------------------------------------------

    def listen(self) -> bool:
        """Register the comm targets once; return False outside a kernel."""
        if not self._listening:
            self._listening = listen(
                lambda client, comm: self.connect(client, comm_sender(comm)),
                self.receive,
                self.disconnect,
            )
        return self._listening

    def add(self, experiment: Experiment) -> None:
        """Publish ``experiment`` to every view, until it is closed or collected."""
        key = experiment.id
        self._experiments[key] = experiment
        weakref.finalize(experiment, self._gone, key).atexit = False
        this = weakref.ref(self)

        def changed(what: object) -> None:
            hub = this()
            if hub is None:
                return
            if isinstance(what, Closed):
                hub.remove(key)
                return
            if isinstance(what, StatusChanged) and what.status != "training":
                hub.hold_until_reported(key)
            hub.touch(key)

        experiment.subscribe(changed)
        experiment.scalars.add_sink(changed)
        self.touch(key)

    def hold_until_reported(self, experiment_id: str) -> None:
        """Hold an experiment whose run ended: a loop may bind its name to the next one immediately.

        Without views there is no one to notify, and nothing is held.
        """
        experiment = self._experiments.get(experiment_id)
        if experiment is not None and self._clients:
            self._ended[experiment_id] = experiment

    def remove(self, experiment_id: str) -> None:
        """Remove an experiment from every view."""
        if self._experiments.pop(experiment_id, None) is not None:
            self._gone(experiment_id)

    def touch(self, experiment_id: str) -> None:
        """Mark an experiment as changed. Cheap; can be called from any thread."""
        self._dirty.add(experiment_id)
        if self._thread is not None and self._wake.acquire(blocking=False):
            self._wake.notify()
            self._wake.release()

    # -- what a browser's side calls --------------------------------------------------------

    def connect(self, client_id: str, sender: Sender) -> None:
        """Add a view that connected; it is sent everything."""
        client = Client(client_id, sender)
        self._heard[client_id] = time.monotonic()
        with self._wake:
            self._joined.append(client)
            self._start()
            self._wake.notify()

    def disconnect(self, client_id: str) -> None:
        """Remove a view that said goodbye."""
        with self._wake:
            self._clients.pop(client_id, None)
            self._heard.pop(client_id, None)
            self._wake.notify()

    def receive(self, client_id: str, message: dict[str, Any]) -> None:
        """Queue a message of a view, and do nothing else."""
        self._heard[client_id] = time.monotonic()
        with self._wake:
            self._requests.append(_Request(client_id, message))
            self._start()
            self._wake.notify()

    def end(self) -> None:
        """End the thread permanently, because the interpreter exits."""
        with self._wake:
            self._ending = True
            thread = self._thread
            self._wake.notify()
        if thread is not None:
            thread.join(_ENDING_S)

    # -- the thread -------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._ending:
            self._thread = threading.Thread(target=self._loop, name="workbench-hub", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        published = 0.0
        while True:
            with self._wake:
                if self._ending or not (self._clients or self._joined or self._requests):
                    self._thread = None
                    self._ended.clear()
                    return
                if not (self._requests or self._joined or self._dirty or self._removed):
                    self._wake.wait(IDLE_S)
            self._attempt(self._greet)
            self._attempt(self._carry_out)
            pause = published + PERIOD_S - time.monotonic()
            if pause > 0 and not (self._requests or self._joined):
                with self._wake:
                    self._wake.wait(pause)
                continue
            published = time.monotonic()
            self._attempt(self._publish)

    def _attempt(self, part: Callable[[], None]) -> None:
        """Run ``part``; a model that cannot be described must not end the thread for all."""
        try:
            part()
        except Exception:
            log.exception("the panel's thread failed and continues")

    def _greet(self) -> None:
        while self._joined:
            client = self._joined.popleft()
            if client.id not in self._heard:
                continue  # it said goodbye before it was greeted
            self._clients[client.id] = client
            self._welcome(client)

    def _welcome(self, client: Client) -> None:
        client.forget()
        ids = [one.id for one in self._living()]
        self._send(client, "hello", protocol=PROTOCOL, kernel=state.kernel_facts(), experiments=ids)
        for key in ids:
            self._publish_to(client, key)

    def _living(self) -> list[Experiment]:
        """Return the experiments that still exist, oldest first."""
        # cells may create experiments meanwhile: a loop over the dictionary itself would break
        found = (reference() for reference in self._experiments.valuerefs())
        living = [experiment for experiment in found if experiment is not None]
        return sorted(living, key=lambda experiment: experiment.created_at)

    def _carry_out(self) -> None:
        while self._requests:
            request = self._requests.popleft()
            client = self._clients.get(request.client)
            if isinstance(request, background_work.Done):
                self._hand_over(client, request)
                continue
            kind = request.message.get("type")
            if kind == "command":
                error = self._command(client, request.message)
                if error is not None:
                    self._reply(client, request.message.get("id"), error)
            elif kind == "alive" and client is not None and client.seq == 0:
                self._welcome(client)

    def _reply(self, client: Client | None, request: object, error: str) -> None:
        if client is not None:
            self._send(client, "reply", id=request, ok=not error, error=error)

    def _command(self, client: Client | None, message: dict[str, Any]) -> str | None:
        """Execute a command; return its error message or ``""``; None if the reply comes later."""
        name, key = str(message.get("name")), str(message.get("experiment", ""))
        args = message.get("args")
        if name == "snapshot":
            if client is not None:
                self._welcome(client)
            return ""
        experiment = self._experiments.get(key)
        if experiment is None:
            return "this experiment no longer exists: run its cell again"
        given: dict[str, Any] = dict(args) if isinstance(args, dict) else {}
        try:
            if name in TASKS:
                task = TASKS[name](experiment, given)
                if client is not None:
                    background_work.start(task, client.id, message.get("id"), key, self._made)
                return None
            if name in QUESTIONS:
                self._answer(client, key, QUESTIONS[name](experiment, given))
                return ""
            commands.execute(experiment, name, given)
        except Exception as error:  # any error is the reply
            log.debug("command %s failed", name, exc_info=True)
            return str(error) or type(error).__name__
        concerned = [one.id for one in self._living()] if name in commands.OF_THE_MACHINE else [key]
        self._dirty.update(concerned)
        return ""

    def _answer(self, client: Client | None, key: str, answer: Answer | None) -> None:
        if client is not None and answer is not None:
            buffers = None if answer.data is None else [answer.data]
            self._send(client, answer.kind, buffers, experiment=key, **answer.fields)

    def _made(self, made: background_work.Done) -> None:
        """Queue a finished task, on the thread that did the work, and do nothing else."""
        with self._wake:
            self._requests.append(made)
            self._start()
            self._wake.notify()

    def _hand_over(self, client: Client | None, made: background_work.Done) -> None:
        answer = made.answer
        self._dirty.add(made.experiment)  # it may hold one more capture
        if answer is not None and answer.kind == "answer":  # several may be outstanding at once
            answer = replace(answer, fields={**answer.fields, "id": made.request})
        self._answer(client, made.experiment, answer)
        self._reply(client, made.request, made.error)

    def _publish(self) -> None:
        removed = [self._removed.popleft() for _ in range(len(self._removed))]
        dirty: set[str] = set()
        while self._dirty:  # emptied in place: `touch` may be adding to this very set
            dirty.add(self._dirty.pop())
        ended: list[Experiment] = []  # kept alive until this returns; by then views are notified
        while self._ended:
            key, experiment = self._ended.popitem()
            ended.append(experiment)
            dirty.add(key)
        training = {one.id for one in self._living() if one.status == "training"}
        # checked before anything is sent: what becomes known meanwhile is sent the next time
        ahead = {one.id for one in self._living() if self._clients and _is_forecasting(one)}
        asleep_before = time.monotonic() - ASLEEP_AFTER_S
        for client in list(self._clients.values()):
            if self._heard.get(client.id, 0.0) < asleep_before:
                client.seq = 0
                client.forget()  # a page that was closed without a goodbye stays here permanently
                continue
            for key in removed:
                client.forget_experiment(key)
                self._send(client, "removed", experiment=key)
            for key in dirty | training:
                self._publish_to(client, key)
        self._dirty |= ahead

    def _publish_to(self, client: Client, key: str) -> None:
        experiment = self._experiments.get(key)
        if experiment is None:
            return
        for kind, buffers, fields in changes(client, experiment):
            self._send(client, kind, buffers, experiment=key, **fields)

    def _send(self, client: Client, kind: str, buffers: Any = None, /, **fields: Any) -> None:
        try:
            client.send(kind, buffers, **fields)
        except Exception:  # a closed comm must not end the hub for the others
            log.debug("client %s is gone", client.id, exc_info=True)
            self._clients.pop(client.id, None)

    def _gone(self, key: str) -> None:
        self._removed.append(key)
        self._dirty.discard(key)
        self.touch(key)


def _is_forecasting(experiment: Experiment) -> bool:
    """Whether the future rates of its schedule are being computed, which has to be requested."""
    schedule = experiment.schedule
    return schedule is not None and not schedule.is_whole


_hub: Hub | None = None


def hub() -> Hub:
    """Return the hub of this process."""
    global _hub  # noqa: PLW0603 - one hub a process, made on first use
    if _hub is None:
        _hub = Hub()
    return _hub


def _end() -> None:
    if _hub is not None:
        _hub.end()


def _forget() -> None:
    global _hub  # noqa: PLW0603 - one hub a process, and a fork is another process
    _hub = None


at_exit.register(at_exit.Phase.PREPARATIONS, _end)
at_exit.register_for_forks(_forget)
