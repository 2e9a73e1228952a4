"""The live channels over a real kernel: what a browser sends and receives, without the browser."""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from workbench.panel.channel.channel import PROTOCOL
from workbench.records import GraphRecord, MemoryRecord

SETUP = """
import torch, workbench as wb
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(512, 20), torch.randint(0, 5, (512,))
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
exp = wb.Experiment(model, (x, y), val=(x, y), batch_size=32, name="channel", runs=RUNS)
"""


class Page:
    """A browser page: opens both comms, numbers what arrives, sends commands."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client
        self.id = uuid.uuid4().hex
        self.metrics, self.control = uuid.uuid4().hex, uuid.uuid4().hex
        self.subshell = self._create_subshell()
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []
        for comm, target in (
            (self.metrics, "workbench.metrics"),
            (self.control, "workbench.control"),
        ):
            self._send(
                "comm_open",
                {
                    "comm_id": comm,
                    "target_name": target,
                    "data": {"protocol": PROTOCOL, "client": self.id},
                },
            )

    def _create_subshell(self) -> str:
        """JupyterLab sends comm messages over a subshell: a blocking cell cannot hold them."""
        request = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(request)
        while True:
            reply = self.client.get_control_msg(timeout=120)
            if reply["parent_header"]["msg_id"] == request["header"]["msg_id"]:
                return reply["content"]["subshell_id"]

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        message = self.client.session.msg(kind, content)
        message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)

    def command(self, experiment: str, name: str, **args: Any) -> dict[str, Any]:
        """Send a command and wait for its reply."""
        request = uuid.uuid4().hex
        data = {
            "type": "command",
            "id": request,
            "experiment": experiment,
            "name": name,
            "args": args,
        }
        self._send("comm_msg", {"comm_id": self.control, "data": data})
        return self.until(lambda m: m["type"] == "reply" and m["id"] == request)[0]

    def until(self, found: Any, timeout: float = 60) -> tuple[dict[str, Any], list[bytes]]:
        """The first message, old or new, that satisfies ``found``."""
        seen, deadline = 0, time.monotonic() + timeout
        while True:
            for data, buffers in self.received[seen:]:
                if found(data):
                    return data, buffers
            seen = len(self.received)
            self.pump(deadline)

    def pump(self, deadline: float) -> None:
        """Take one message off the wire."""
        left = deadline - time.monotonic()
        assert left > 0, f"nothing came; last: {[m['type'] for m, _ in self.received[-10:]]}"
        try:
            message = self.client.get_iopub_msg(timeout=min(left, 1))
        except Exception as error:
            if type(error).__name__ != "Empty":
                raise
            return
        if message["msg_type"] == "comm_msg":
            comm = message["content"]["comm_id"]
            assert comm != self.control, "the kernel spoke on control"
            if comm != self.metrics:  # of a page of another test
                return
            self.received.append((message["content"]["data"], message["buffers"]))


def run_cell(client: BlockingKernelClient, code: str) -> None:
    """Run a cell and insist that it succeeded; what it sends on comms is left for the pages."""
    message_id = client.execute(code)
    reply = client.get_shell_msg(timeout=120)
    while reply["parent_header"]["msg_id"] != message_id:
        reply = client.get_shell_msg(timeout=120)
    assert reply["content"]["status"] == "ok", reply["content"]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    runs = str(tmp_path_factory.mktemp("runs"))
    run_cell(client, f"RUNS = {runs!r}\n{SETUP}")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture
def page(kernel: BlockingKernelClient) -> Page:
    return Page(kernel)


def experiment_of(page: Page) -> str:
    hello, _ = page.until(lambda m: m["type"] == "hello")
    assert hello["protocol"] == PROTOCOL
    assert hello["kernel"]["cores"] >= 1
    return hello["experiments"][0]


def announcements(client: BlockingKernelClient) -> list[str]:
    """The comms by which a page that is loaded later finds Workbench here."""
    message_id = client.comm_info("workbench.presence")
    reply = client.get_shell_msg(timeout=120)
    while reply["parent_header"]["msg_id"] != message_id:
        reply = client.get_shell_msg(timeout=120)
    return list(reply["content"]["comms"])


def test_workbench_is_found_after_a_console_refused_its_announcement(
    kernel: BlockingKernelClient,
) -> None:
    announced = announcements(kernel)
    assert len(announced) == 1
    for _ in range(2):
        # as JupyterLab does with every comm of a target that a connection does not know
        close = kernel.session.msg("comm_close", {"comm_id": announced[0], "data": {}})
        kernel.shell_channel.send(close)
        assert announcements(kernel) == announced


def test_a_page_is_greeted_with_everything_in_order(page: Page) -> None:
    key = experiment_of(page)
    state, _ = page.until(lambda m: m["type"] == "state")
    assert state["experiment"] == key
    assert state["state"]["name"] == "channel"
    assert {mode["name"] for mode in state["state"]["modes"]} == {
        "checkpoint",
        "compile",
        "precision",
        "attention",
        "parallel",
    }
    curves, _ = page.until(lambda m: m["type"] == "curves")
    assert curves["reset"] is True
    assert [m["seq"] for m, _ in page.received] == list(range(1, len(page.received) + 1))


def test_training_from_the_page_streams_curves_without_a_gap(page: Page) -> None:
    key = experiment_of(page)
    page.until(lambda m: m["type"] == "curves")
    assert page.command(key, "run", epochs=5)["ok"]
    arrived: dict[str, Any] = {}

    def complete(message: dict[str, Any]) -> bool:
        # the last loss and the last validation may come in one message or in two
        if message["type"] == "curves":
            arrived.update(zip(message["names"], message["total"], strict=True))
        elif message["type"] == "state":
            arrived["status"] = message["state"]["status"]
        wanted = {"status": "finished", "train/loss": 80, "val/accuracy": 5}
        return arrived.items() >= wanted.items()

    page.until(complete)
    totals: dict[str, int] = {}
    losses: list[float] = []
    steps: list[int] = []
    for message, buffers in page.received:
        if message["type"] != "curves":
            continue
        for i, name in enumerate(message["names"]):
            assert message["from"][i] == (0 if message["reset"] else totals.get(name, 0))
            totals[name] = message["total"][i]
            if name == "train/loss":
                count = len(buffers[3 * i]) // 4
                steps += struct.unpack(f"<{count}i", bytes(buffers[3 * i]))
                losses += struct.unpack(f"<{count}f", bytes(buffers[3 * i + 1]))
    assert steps == list(range(1, 81))
    assert all(0 < loss < 5 for loss in losses)
    assert totals["val/accuracy"] == 5


def test_every_refusal_is_one_clear_sentence(page: Page) -> None:
    key = experiment_of(page)
    for name, args, expected in (
        ("explode", {}, "unknown command"),
        ("run", {"epochs": -1}, "whole number"),
        ("set_learning_rate", {"value": "fast"}, "positive finite number"),
        ("set_mode", {"mode": "precision", "value": "fp3"}, "bf16"),
        ("set_modes", {"modes": "turbo"}, "turbo"),
        ("capture", {"what": "soul"}, "graph, memory"),
    ):
        reply = page.command(key, name, **args)
        assert not reply["ok"]
        assert expected in reply["error"]
        assert "\n" not in reply["error"]
    gone = page.command("0000", "pause")
    assert "no longer exists" in gone["error"]


def test_a_capture_is_announced_and_can_be_fetched(page: Page) -> None:
    key = experiment_of(page)
    assert page.command(key, "capture", what="both")["ok"]
    state, _ = page.until(
        lambda m: (
            m["type"] == "state"
            and {c["kind"] for c in m["state"]["captures"]} == {"graph", "memory"}
        )
    )
    for info in state["state"]["captures"]:
        reply = page.command(key, "fetch", capture=info["id"])
        assert reply["ok"], reply["error"]
        record, buffers = page.until(
            lambda m, wanted=info["id"]: m["type"] == "record" and m["capture"] == wanted
        )
        blob = bytes(buffers[0])
        header = json.loads(blob[8 : 8 + struct.unpack("<Q", blob[:8])[0]])
        schema = {"graph": GraphRecord, "memory": MemoryRecord}[record["kind"]].schema
        assert header["__metadata__"]["schema"] == schema
    chart, buffers = page.until(lambda m: m["type"] == "chart")
    assert chart["experiment"] == key
    assert b"workbench.memory_chart/1" in bytes(buffers[0])


def test_a_capture_is_exported_as_a_file_before_its_reply(page: Page) -> None:
    key = experiment_of(page)
    assert page.command(key, "capture", what="graph")["ok"]
    state, _ = page.until(lambda m: m["type"] == "state" and bool(m["state"]["captures"]))
    capture = next(c["id"] for c in state["state"]["captures"] if c["kind"] == "graph")
    for form, begins in (("png", b"\x89PNG\r\n\x1a\n"), ("dot", b"digraph")):
        reply = page.command(key, "export", capture=capture, format=form)
        assert reply["ok"], reply["error"]
        file, buffers = page.until(
            lambda m, wanted=form: m["type"] == "file" and m["format"] == wanted
        )
        assert file["seq"] < reply["seq"]
        assert bytes(buffers[0]).startswith(begins)
    refused = page.command(key, "export", capture=capture, format="docx")
    assert not refused["ok"]
    assert "valid: svg, png, pdf, dot, json" in refused["error"]


def test_a_question_of_a_capture_is_answered_before_its_reply(page: Page) -> None:
    state, _ = page.until(lambda m: m["type"] == "state")
    key = state["experiment"]
    assert page.command(key, "capture", what="both")["ok"]
    state, _ = page.until(
        lambda m: (
            m["type"] == "state"
            and {"graph", "memory"} <= {c["kind"] for c in m["state"]["captures"]}
        )
    )
    captures = {one["kind"]: one["id"] for one in state["state"]["captures"]}
    _, data = (
        page.command(key, "fetch", capture=captures["memory"]),
        page.until(lambda m: m["type"] == "record" and m["capture"] == captures["memory"])[1],
    )
    question = {"kind": "what_if", "rows": [{"settings": ""}, {"settings": "no:such"}]}
    reply = page.command(key, "ask", capture=captures["memory"], question=question)
    assert reply["ok"], reply
    answer, buffers = page.until(lambda m: m["type"] == "answer" and m["id"] == reply["id"])
    assert buffers == []
    assert answer["seq"] < reply["seq"]
    rows = answer["answer"]["rows"]
    assert rows[0]["peak_bytes"] >= MemoryRecord.from_bytes(bytes(data[0])).peak_bytes
    assert rows[0]["error"] == ""
    assert rows[1]["error"].strip()
    for args, words in (
        ({"capture": captures["graph"], "question": question}, "a memory capture does"),
        ({"capture": "gone", "question": question}, "no longer held"),
        ({"capture": captures["memory"], "question": 3}, "must be an object"),
        ({"capture": captures["memory"], "question": {"kind": "why"}}, "why"),
    ):
        refused = page.command(key, "ask", **args)
        assert not refused["ok"]
        assert words in refused["error"]


def test_two_pages_see_the_same_and_a_late_one_sees_all(kernel: BlockingKernelClient) -> None:
    first = Page(kernel)
    key = experiment_of(first)
    assert first.command(key, "set_learning_rate", value=0.005)["ok"]
    second = Page(kernel)
    second.until(
        lambda m: (
            m["type"] == "state"
            and m["experiment"] == key
            and m["state"]["learning_rate"] == pytest.approx(0.005)
        )
    )
    curves, buffers = second.until(lambda m: m["type"] == "curves")
    assert curves["reset"]
    assert len(buffers[0]) // 4 == curves["total"][0] >= 80


def test_stop_works_while_a_cell_blocks(kernel: BlockingKernelClient) -> None:
    page = Page(kernel)
    key = experiment_of(page)
    kernel.execute("exp.run(epochs=100_000, wait=True)")
    page.until(lambda m: m["type"] == "state" and m["state"]["status"] == "training")
    assert page.command(key, "stop")["ok"]
    page.until(lambda m: m["type"] == "state" and m["state"]["status"] == "stopped")


def test_a_deleted_experiment_disappears_and_frees_its_model(kernel: BlockingKernelClient) -> None:
    page = Page(kernel)
    experiment_of(page)
    run_cell(
        kernel,
        "import gc, threading, weakref\n"
        "other = wb.Experiment(nn.Linear(20, 5), (x, y), name='other', runs=RUNS)\n"
        "other.run(steps=3, wait=True)\n"
        "freed = threading.Event()\n"
        "weakref.finalize(other.model, freed.set)",
    )
    other, _ = page.until(lambda m: m["type"] == "state" and m["state"]["name"] == "other")
    run_cell(
        kernel,
        "del other\n"
        "for _ in range(2400):  # a thread that draws or publishes may be looking at it right now\n"
        "    gc.collect()\n"
        "    if freed.wait(0.05): break\n"
        "assert freed.is_set()",
    )
    page.until(lambda m: m["type"] == "removed" and m["experiment"] == other["experiment"])
