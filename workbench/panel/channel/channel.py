"""The two comms of one browser, as a client that the hub can send to.

The browser opens both comms (`docs/architecture.md`, "The live channels"). The kernel sends only on
the metrics comm: ipykernel 7.4 routes a front-end message to the shell that last *sent* on its
comm, so a control comm that never sends keeps its commands moving while a cell blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

PROTOCOL = 2
CONTROL_TARGET = "workbench.control"
METRICS_TARGET = "workbench.metrics"
PRESENCE_TARGET = "workbench.presence"

_presence: list[Any] = []


class Sender(Protocol):
    """Sends to a client: over a comm, or over an anywidget model where comms cannot be opened."""

    def __call__(self, data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
        """Send one message."""
        ...


@dataclass
class Client:
    """A connected browser view.

    ``points`` stores how many points of every curve the client has been sent, by (experiment,
    name).
    """

    id: str
    sender: Sender
    seq: int = 0
    points: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    charts: dict[str, str] = field(default_factory=dict[str, str])
    """Id of the memory capture whose chart was sent last, by experiment."""
    states: dict[str, str] = field(default_factory=dict[str, str])
    """The state last sent, as JSON, by experiment: equal states are not sent again."""

    def send(self, kind: str, buffers: Sequence[bytes] | None = None, /, **fields: Any) -> None:
        """Send a message with the next sequence number."""
        self.seq += 1
        self.sender({"type": kind, "seq": self.seq, **fields}, buffers)

    def forget(self) -> None:
        """Reset the client, so that the next messages carry everything again."""
        self.points.clear()
        self.charts.clear()
        self.states.clear()

    def forget_experiment(self, experiment: str) -> None:
        """Drop what is stored about one experiment."""
        self.charts.pop(experiment, None)
        self.states.pop(experiment, None)
        for key in [key for key in self.points if key[0] == experiment]:
            del self.points[key]


def listen(
    on_metrics: Callable[[str, Any], None],
    on_command: Callable[[str, dict[str, Any]], None],
    on_closed: Callable[[str], None],
) -> bool:
    """Register both comm targets with this kernel; return False when there is no kernel.

    Args:
        on_metrics: called with (client id, comm) when a browser has opened its metrics comm.
        on_command: called with (client id, message) for every message on a control comm.
        on_closed: called with the client id when its metrics comm has closed.
    """
    manager = _comm_manager()
    if manager is None:
        return False

    def open_metrics(comm: Any, message: dict[str, Any]) -> None:
        client = _client_of(message)

        def closed(_message: Any) -> None:
            on_closed(client)

        comm.on_close(closed)
        on_metrics(client, comm)

    def open_control(comm: Any, message: dict[str, Any]) -> None:
        client = _client_of(message)

        def received(command: Any) -> None:
            on_command(client, dict(command["content"]["data"]))

        comm.on_msg(received)

    manager.register_target(METRICS_TARGET, open_metrics)
    manager.register_target(CONTROL_TARGET, open_control)
    _announce()
    return True


def _announce() -> None:
    """Signal to JupyterLab's side panel that this kernel can answer, even while a cell blocks.

    The comm carries no data. It is kept open, so that a page finds it after a reload, even where a
    connection that does not know this target (a console's) has closed it, as JupyterLab does.
    """
    from comm import create_comm, get_comm_manager

    presence = create_comm(target_name=PRESENCE_TARGET)

    def keep(_message: Any) -> None:
        get_comm_manager().register_comm(presence)

    presence.on_close(keep)
    _presence.append(presence)


def comm_sender(comm: Any) -> Sender:
    """Return a sender over a comm that the browser opened."""

    def send(data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
        comm.send(data=data, buffers=list(buffers) if buffers else None)

    return send


def _client_of(message: dict[str, Any]) -> str:
    data = message["content"].get("data") or {}
    return str(data.get("client", ""))[:64]


def _comm_manager() -> Any | None:
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:  # a script without IPython: there is no browser to talk to
        return None
    shell = get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from comm import get_comm_manager

    return get_comm_manager()
