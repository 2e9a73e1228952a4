"""Time from asking for TensorBoard to its first chart, cold, in a real browser.

Judged beside TensorBoard as it is started on the command line, opened in the same browser: in
turns, with the process not running yet, files of its own and an empty cache each time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.browser import PATIENCE_MS, browser
from tests.benchmarks.table import compare, measure_interleaved, median, ratio_line, ratios
from tests.server.support import TOKEN, Server, start_server, stop_server, write_events

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.benchmark
ROUNDS = 5
FIRST_CHART = 1.5
"""Times what ``tensorboard`` on the command line and the same browser take to the first chart."""
PLAIN, OURS = "tensorboard --logdir", "behind Jupyter"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = start_server(tmp_path)
    yield found
    stop_server(found)


def test_cold_start_to_first_chart_beside_the_command_line(server: Server) -> None:
    """The process does not run yet and the browser's cache is empty."""
    with browser() as found:
        contenders = {
            PLAIN: partial(plain_chart_s, found, server.root),
            OURS: partial(our_chart_s, found, server),
        }
        measure_interleaved(contenders, 1)  # what the system has to read from disk is read
        results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare("TensorBoard, cold, to its first chart", "s", results, baseline=PLAIN))
    over = ratios(results[OURS], results[PLAIN])
    print(ratio_line(f"{OURS} over {PLAIN}", over, FIRST_CHART))
    assert median(over) <= FIRST_CHART


def our_chart_s(found: Browser, server: Server) -> float:
    logdir = new_run(server.root)
    with empty_page(found) as page:
        page.goto(f"{server.base}api/runs?token={TOKEN}")
        origin = server.base.split("/user/")[0]
        started = time.perf_counter()
        board = server.start(logdir.name)
        see_chart(page, f"{origin}{board['url']}")
        took = time.perf_counter() - started
    # as the command line's is ended; and only so many may run
    assert server.ask("DELETE", f"api/tensorboard/{board['id']}").status_code == 204
    return took


def plain_chart_s(found: Browser, root: Path) -> float:
    logdir = new_run(root)
    with empty_page(found) as page:
        started = time.perf_counter()
        with on_command_line(logdir) as url:
            see_chart(page, url)
            return time.perf_counter() - started


@contextmanager
def on_command_line(logdir: Path) -> Iterator[str]:
    """Where a TensorBoard of its own listens."""
    command = [sys.executable, "-m", "tensorboard.main", f"--logdir={logdir}", "--port=0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        told = (re.search(r"http://\S+", line) for line in process.stderr)
        yield next(found for found in told if found).group()
    finally:
        process.terminate()
        process.communicate()


def new_run(root: Path) -> Path:
    """A folder that no TensorBoard has seen."""
    logdir = root / f"runs-{len(list(root.iterdir()))}"
    write_events(logdir / "digits")
    return logdir


@contextmanager
def empty_page(found: Browser) -> Iterator[Page]:
    """A page with a cache of its own."""
    context = found.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


def see_chart(page: Page, url: str) -> None:
    page.goto(f"{url}#timeseries", wait_until="commit")
    page.wait_for_selector("scalar-card line-chart svg", state="attached")
