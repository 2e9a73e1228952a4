"""A cell that runs again pauses what it had left training; in a real kernel, with cells' ids."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.integration.scripts import environment
from tests.waiting import wait_until

SETUP = """
import torch, workbench as wb
from torch import nn
x, y = torch.randn(64, 4), torch.arange(64) % 2
def made(name):
    return wb.Experiment(nn.Linear(4, 2), (x, y), batch_size=4, device="cpu", name=name)
every = {}
def kept(exp):
    import weakref
    every[len(every)] = weakref.ref(exp)
    return exp
def told():
    return [(e.status, e.message) if (e := ref()) is not None else "gone" for ref in every.values()]
"""
FIRST = "exp = kept(made('net')); run = exp.run(epochs=1_000_000)\nexp"


class Notebook:
    """A kernel, and cells that are run by their ids."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, code: str, cell: str) -> str:
        """Run a cell as a notebook does; gives what it printed."""
        content = {
            "code": code, "silent": False, "store_history": True,
            "user_expressions": {}, "allow_stdin": False, "stop_on_error": False,
        }  # fmt: skip
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell})
        self.client.shell_channel.send(message)
        printed: list[str] = []
        for kind, said in self._messages(message["header"]["msg_id"]):
            if kind == "stream":
                printed.append(said["text"])
            assert kind != "error", "\n".join(said.get("traceback", []))
        return "".join(printed)

    def _messages(self, request: str) -> Iterator[tuple[str, Any]]:
        while True:
            message = self.client.get_iopub_msg(timeout=180)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return
            yield kind, content

    def told(self) -> list[Any]:
        """Status and message of every experiment so far."""
        found: list[Any] = eval(self.run("print(told())", "look"))
        return found

    def statuses(self) -> list[str]:
        return [one if isinstance(one, str) else one[0] for one in self.told()]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    from jupyter_client.manager import start_new_kernel

    folder = tmp_path_factory.mktemp("reruns")
    manager, client = start_new_kernel(extra_arguments=[], env=environment(), cwd=str(folder))
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


@pytest.fixture
def notebook(kernel: Any) -> Notebook:
    one = Notebook(kernel)
    one.run("%reset -f", "reset")
    one.run(SETUP, "setup")
    return one


def test_what_a_cell_left_training_is_paused_once_it_has_run_again(notebook: Notebook) -> None:
    notebook.run(FIRST, "a")
    assert notebook.statuses() == ["training"]
    notebook.run(FIRST, "a")
    wait_until(lambda: notebook.statuses() == ["paused", "training"], "the pause of the first")
    (_status, message), _ = notebook.told()
    assert message.startswith("step ")
    assert message.endswith(": paused, because its cell ran again")
    notebook.run("every[0]().resume(); None", "undo")
    assert notebook.statuses() == ["training", "training"], "undone"
    notebook.run(FIRST, "a")
    wait_until(lambda: notebook.statuses() == ["training", "paused", "training"])


def test_another_cell_of_the_same_name_is_another_experiment(notebook: Notebook) -> None:
    notebook.run(FIRST, "b")
    notebook.run(FIRST.replace("exp", "other").replace("run =", "more ="), "c")
    notebook.run("made('net'); None", "b2")
    assert notebook.statuses() == ["training", "training"]


@pytest.mark.parametrize("hold", ["mine = exp", "trials = [exp]", "by_name = {'one': exp}"])
def test_who_holds_it_by_another_name_wants_it(notebook: Notebook, hold: str) -> None:
    notebook.run(FIRST, "d")
    notebook.run(hold, "e")
    notebook.run(FIRST, "d")
    assert notebook.statuses() == ["training", "training"]


def test_a_cell_that_fails_before_it_makes_one_changes_nothing(notebook: Notebook) -> None:
    notebook.run(FIRST, "f")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        notebook.run("1 / 0\n" + FIRST, "f")
    assert notebook.statuses() == ["training"]
    notebook.run(FIRST, "f")
    wait_until(lambda: notebook.statuses() == ["paused", "training"])


def test_it_is_paused_before_the_new_one_has_trained_to_its_end(notebook: Notebook) -> None:
    notebook.run(FIRST, "g")
    notebook.run(FIRST.replace("epochs=1_000_000", "epochs=1, wait=True"), "g")
    wait_until(lambda: notebook.statuses() == ["paused", "finished"])


def test_a_console_has_no_cells(notebook: Notebook) -> None:
    notebook.run(FIRST, "")
    notebook.run(FIRST, "")
    assert notebook.statuses() == ["training", "training"]
