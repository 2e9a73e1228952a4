"""Drives `graph_page.ts` in Chromium: the graph view without Jupyter, on a page that times it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.browser import PATIENCE_MS, browser

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

ROOT = Path(__file__).parents[2]
ESBUILD = ROOT / "extensions" / "node_modules" / ".bin" / "esbuild"
AVAILABLE = ESBUILD.exists()
"""Whether the page can be bundled; `graph_page` skips where it cannot, or where no browser is."""
SIZE = {"width": 1600, "height": 1000}
ORIGIN = "http://graph.invalid"
"""Answered by the test itself: nothing leaves the machine."""


@dataclass(frozen=True)
class Opened:
    """Milliseconds from the record's bytes in the page, and the longest pause without an answer."""

    read: float
    mounted: float
    pixels: float
    blocked: float
    error: str | None


class GraphPage:
    """One page with one graph view on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.files: dict[str, bytes] = {}
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", self._answer)

    def load(self, theme: str = "light") -> None:
        """Start from an empty page in one of JupyterLab's themes."""
        self.page.goto(f"{ORIGIN}/{theme}")

    def open(self, data: bytes) -> Opened:
        """Show the record whose bytes are ``data``."""
        self.files["/record"] = data
        return Opened(**self.page.evaluate("graphPage.open('/record')"))

    def pan(self, seconds: float) -> list[float]:
        """Pan for ``seconds``; returns milliseconds between one frame and the next."""
        found: dict[str, Any] = self.page.evaluate("graphPage.pan", seconds)
        assert found["moved"], "panning left the picture as it was"
        return found["frames"]

    def draw_plainly(self, boxes: int) -> float:
        """Milliseconds in which the page draws so many on a canvas and reads its pixels back."""
        return self.page.evaluate("graphPage.drawPlainly", boxes)

    def pan_plainly(self, seconds: float, boxes: int) -> list[float]:
        """As `pan`, on a canvas on which so many boxes and lines are drawn for each frame."""
        return self.page.evaluate("([s, n]) => graphPage.panPlainly(s, n)", [seconds, boxes])

    def _answer(self, route: Route) -> None:
        path = "/" + route.request.url.removeprefix(ORIGIN).lstrip("/")
        if path in {"/light", "/dark"}:
            html = _HTML.replace("THEME", path[1:]).replace("LIGHT", json.dumps(path == "/light"))
            route.fulfill(body=html, content_type="text/html")
        elif path == "/page.js":
            route.fulfill(body=bundle(), content_type="text/javascript")
        elif path.startswith("/theme/"):
            route.fulfill(body=theme_css(path.removeprefix("/theme/")), content_type="text/css")
        elif path in self.files:
            route.fulfill(body=self.files[path], content_type="application/octet-stream")
        else:
            route.fulfill(status=404)


_HTML = """<!doctype html>
<html data-jp-theme-name="THEME" data-jp-theme-light=LIGHT>
<meta charset="utf-8"><link rel="stylesheet" href="/theme/THEME">
<style>
  body { margin: 0; background: var(--jp-layout-color0); color: var(--jp-ui-font-color1) }
  #host { height: 100vh }
</style>
<div id="host"></div><script type="module" src="/page.js"></script>
"""


@contextmanager
def graph_page() -> Iterator[GraphPage]:
    """A page in headless Chromium."""
    if not AVAILABLE:
        pytest.skip("needs extensions/node_modules: python scripts/frontend.py --install-only")
    with browser() as found:
        yield GraphPage(found.new_page(viewport=SIZE))


@lru_cache
def bundle() -> str:
    """`graph_page.ts` and the view, from their sources, minified as the widget's bundle is."""
    command = [
        *(str(ESBUILD), str(Path(__file__).with_name("graph_page.ts"))),
        *("--bundle", "--minify", "--format=esm", "--target=es2022", "--conditions=source"),
        "--loader:.css=text",
    ]
    env = {**os.environ, "NODE_PATH": str(ROOT / "extensions" / "node_modules")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@lru_cache
def theme_css(name: str) -> str:
    """JupyterLab's own colours, which the view takes its own from."""
    themes = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
    colours = ROOT / "extensions/node_modules/@jupyterlab/apputils/style/materialcolors.css"
    files = [colours, themes / f"theme-{name}-extension" / "index.css"]
    return "\n".join(file.read_text() for file in files if file.exists())
