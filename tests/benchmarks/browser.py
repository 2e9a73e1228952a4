"""The one way in which benchmarks find and start Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest
from chromium import find_or_install

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE_MS = 600_000
"""Until what never comes is given up, on a machine of any speed."""

chromium = lru_cache(find_or_install)
"""Its path (empty where there is none) and a sentence; looked for, or installed, once."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless Chromium; skips the test where there is none and none can be installed."""
    reason = "needs playwright: pip install playwright"
    sync_playwright = pytest.importorskip("playwright.sync_api", reason=reason).sync_playwright
    path, sentence = chromium()
    if not path:
        pytest.skip(sentence)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        try:
            yield found
        finally:
            found.close()
