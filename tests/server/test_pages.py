"""JupyterLab of servers that are set up otherwise than most: the page of each, in a browser."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jupyter_server.auth import passwd

from tests.lab import PACED, press, run_cell, see_it_train, window, write_notebook
from tests.server.support import CHECKOUT, TOKEN, start_server, stop_server
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

EXPERIMENT = f"""{PACED}
x, y = torch.randn(512, 16), torch.randint(0, 3, (512,))
exp = wb.Experiment(model, (x, y), batch_size=32, epochs=10_000, name="here")
run = exp.run()
exp
"""


COLLABORATION = CHECKOUT / ".cache/collaboration"
"""jupyter-collaboration in a folder of its own: where it is installed, every document is shared."""


@pytest.fixture
def context(request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    with window(request.node.name) as found:
        yield found


NET = """
import time, torch

class Net(torch.nn.Sequential):
    def forward(self, x):
        time.sleep(0.01)
        return super().forward(x)
"""


def test_a_password_and_an_at_sign_in_the_address(tmp_path: Path, context: BrowserContext) -> None:
    """As a server behind a person's e-mail address has it: nothing is known by a token.

    Its root is a link, as of a home that is mounted elsewhere: a kernel knows it by another name.
    """
    hashed = passwd("a secret")
    flags = [f"--PasswordIdentityProvider.hashed_password={hashed}"]
    (tmp_path / "home").symlink_to(tmp_path / "root")
    flags.append(f"--ServerApp.root_dir={tmp_path / 'home'}")
    server = start_server(tmp_path, *flags, base_url="/user/ada%40lab/", token="")
    try:
        notebook = server.root / "work/first.ipynb"
        cell = EXPERIMENT.replace("(model,", "(Net(*model),")
        write_notebook(notebook, f"from net import Net\n{cell}")
        notebook.with_name("net.py").write_text(NET)
        page = context.new_page()
        page.goto(server.base.replace("workbench/", "lab/tree/work/first.ipynb"))
        page.get_by_label("Password").fill("a secret")
        press(page, "Log in")
        run_cell(page, 0)
        panel = page.locator(".jp-Notebook").get_by_role("region", name=re.compile("^Experiment"))
        see_it_train(panel)
        page.locator("[data-id=workbench-side-panel]").click()
        page.locator("#workbench-side-panel .wb-runs tbody tr").wait_for()
        press(panel, "TensorBoard")
        tensorboard = page.frame_locator(".jp-Workbench-tensorboard iframe")
        tensorboard.locator("scalar-card").first.wait_for()

        page.get_by_role("tab", name="first.ipynb").click()
        press(panel, "Graph")
        graph = page.locator(".jp-Workbench-document:visible")
        graph.get_by_role("treeitem", name=re.compile("^0")).first.click()
        graph.get_by_role("button", name=re.compile(r"^net\.py:\d+$")).first.click()
        page.locator(".jp-FileEditor").get_by_text("class Net").wait_for()
    finally:
        stop_server(server)


READ_ONLY = """
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError

class ReadOnly(AsyncLargeFileManager):
    async def save(self, model, path=""):
        raise HTTPError(403, "This server does not write.")

c.ServerApp.contents_manager_class = ReadOnly
"""


def close_dialogs(page: Page) -> None:
    """Close whatever dialog comes in the way of a press."""
    dialog = page.locator(".jp-Dialog").first

    def close() -> None:
        dialog.locator(".jp-mod-accept").first.click()

    page.add_locator_handler(dialog, close)


def test_a_folder_that_no_user_may_write_to(tmp_path: Path, context: BrowserContext) -> None:
    """Of a course, or a published one: it trains, shows what it can, and says what it cannot."""
    program = [sys.executable]
    if os.geteuid() == 0:  # root writes everywhere, unless it may not
        if shutil.which("setpriv") is None:
            pytest.skip("root writes everywhere, and there is no setpriv to take that away")
        program = ["setpriv", "--bounding-set=-dac_override", *program]
    config = tmp_path / "config"
    config.mkdir()
    (config / "jupyter_server_config.py").write_text(READ_ONLY)
    server = start_server(tmp_path, program=program)
    work = server.root / "work"
    try:
        write_notebook(work / "first.ipynb", EXPERIMENT)
        work.chmod(0o555)
        page = context.new_page()
        close_dialogs(page)  # JupyterLab saves by itself after two minutes, and says it cannot
        page.goto(f"{server.base.replace('workbench/', 'lab/tree/work/first.ipynb')}?token={TOKEN}")
        run_cell(page, 0)
        panel = page.locator(".jp-Notebook").get_by_role("region", name=re.compile("^Experiment"))
        see_it_train(panel)
        panel.get_by_text("nothing is written to disk").first.wait_for()
        page.locator("[data-id=workbench-side-panel]").click()
        press(panel, "Graph")
        graph = page.locator(".jp-Workbench-document:visible")
        graph.get_by_role("treeitem").first.wait_for()
        drawing = graph.locator("canvas[role=application]")
        drawing.click(button="right", position={"x": 60, "y": 60})
        page.get_by_role("menuitem", name="Save Capture as a File").click()
        page.get_by_text("This server does not write.").first.wait_for()
        page.get_by_role("tab", name="first.ipynb").click()
        press(panel, "TensorBoard")
        page.locator(".jp-Workbench-tensorboard .jp-Workbench-notice").wait_for()
        assert list(work.iterdir()) == [work / "first.ipynb"]
    finally:
        work.chmod(0o755)
        stop_server(server)


def test_two_people_on_one_document(tmp_path: Path, context: BrowserContext) -> None:
    """The document is of a drive of its own; its folder is the kernel's all the same."""
    found = next(COLLABORATION.glob("lib/python*/site-packages/jupyter_server_ydoc"), None)
    if found is None:
        pytest.skip("needs jupyter-collaboration in .cache/collaboration: see the Makefile")
    variables = {
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(found.parent)]),
        "JUPYTER_PATH": str(COLLABORATION / "share/jupyter"),
        "JUPYTER_CONFIG_PATH": str(COLLABORATION / "etc/jupyter"),
        "HOME": str(tmp_path),  # which has its data base
    }
    server = start_server(tmp_path, variables=variables)
    try:
        write_notebook(server.root / "work/first.ipynb", EXPERIMENT)
        address = f"{server.base.replace('workbench/', 'lab/tree/work/first.ipynb')}?token={TOKEN}"
        pages = [context.new_page()]
        pages[0].goto(address)
        run_cell(pages[0], 0)
        browser = context.browser
        assert browser is not None
        pages.append(browser.new_context(viewport={"width": 1600, "height": 1000}).new_page())
        pages[1].set_default_timeout(1000 * DEADLINE_S)
        pages[1].goto(address)
        ours = re.compile("^Experiment")
        one, other = (p.locator(".jp-Notebook").get_by_role("region", name=ours) for p in pages)
        see_it_train(one)
        see_it_train(other)
        other.get_by_role("radio", name="bf16").click()
        one.get_by_role("radio", name="bf16", checked=True).wait_for()

        pages[0].reload()
        see_it_train(one)
        see_it_train(other)
        press(one, "Pause")
        press(other, "Resume")
        pages[1].locator("[data-id=workbench-side-panel]").click()
        pages[1].locator("#workbench-side-panel .wb-runs tbody tr").wait_for()
        press(other, "Graph")
        drawing = pages[1].locator(".jp-Workbench-document:visible canvas[role=application]")
        drawing.click(button="right", position={"x": 60, "y": 60})
        pages[1].get_by_role("menuitem", name="Save Capture as a File").click()
        pages[1].get_by_text("Saved as").first.wait_for()
        assert list((server.root / "work").glob("here-step-*.graph.safetensors"))
    finally:
        stop_server(server)
