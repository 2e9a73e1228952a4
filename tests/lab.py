"""A person's notebook in JupyterLab: its file, its page in Chromium, its cells and panels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.browser import browser
from tests.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

PICTURES = Path(__file__).parents[1] / "artifacts/ui"
"""How the pages looked at the end, whatever it was."""

PACED = """
import time, torch, workbench as wb
class Paced(torch.nn.Sequential):
    def forward(self, x):
        time.sleep(0.01)
        return super().forward(x)
model = Paced(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))"""
"""The beginning of a cell: a model whose steps can be followed by eye."""


@contextmanager
def window(name: str) -> Iterator[BrowserContext]:
    """A browser in which nobody has logged in; pictures of its pages are taken at the end."""
    with browser() as chromium:
        found = chromium.new_context(viewport={"width": 1600, "height": 1000})
        found.set_default_timeout(1000 * DEADLINE_S)
        try:
            yield found
        finally:
            for number, page in enumerate(found.pages):
                page.screenshot(path=PICTURES / f"{name}-{number}.png")


def write_notebook(path: Path, *cells: str) -> None:
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {
        "cells": [{**code, "id": f"cell-{i}", "source": one} for i, one in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook))


def press(within: Page | Locator, name: str) -> None:
    within.get_by_role("button", name=name, exact=True).click()


def heard(page: Page) -> bool:
    """Let Playwright hear what the browser has told meanwhile."""
    return page.evaluate("true")


def run_cell(page: Page, number: int) -> None:
    """Run a cell of a kernel at rest.

    Of one that has not come yet JupyterLab asks which it shall be, over the whole page; and it
    drops what is sent before the kernel has settled.
    """
    page.get_by_text(re.compile(r"\| Idle$")).wait_for()  # of the status bar
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt")

    def has_run() -> bool:
        said = prompt.inner_text()
        if said.startswith("[ ]"):
            cell.locator(".cm-content").click()
            page.keyboard.press("Control+Enter")
        return re.match(r"\[\d+\]", said) is not None

    wait_until(has_run, "the end of the cell")


def see_it_train(panel: Locator) -> None:
    """Wait until a panel shows later and later steps."""
    panel.scroll_into_view_if_needed()
    bar = panel.get_by_role("progressbar")

    def step() -> int:
        return int(bar.get_attribute("aria-valuenow") or 0)

    before = step()
    wait_until(lambda: step() > before, "a later step")
