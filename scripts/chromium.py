"""Find a Chromium for the browser tests, or install one, and say in one sentence what was done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_PACKAGE = "chromium-headless-shell"
"""The same Chromium without its windows, which no test looks at: a tenth less to compute."""
_NAMES = (_PACKAGE, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> None:
    """Print the path on standard output and the sentence on standard error."""
    path, sentence = find_or_install()
    print(sentence, file=sys.stderr)
    if not path:
        raise SystemExit(1)
    print(path)


def find_or_install() -> tuple[str, str]:
    """The path of a Chromium (empty when there is none) and the sentence that explains it."""
    found = os.environ.get("CHROMIUM") or _on_path() or _of_playwright()
    if found:
        return found, f"Browser tests use {found}."
    if _is_root() and shutil.which("apt-get"):
        _run("apt-get", "update", "-qq")
        for package in (_PACKAGE, "chromium"):  # not every release has the first
            _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", package)
            if found := _on_path():
                return found, f"Browser tests use {found}, installed from the package {package}."
    _run(sys.executable, "-m", "playwright", "install", "chromium")
    found = _of_playwright()
    if found:
        return found, f"Browser tests use {found}, downloaded by Playwright."
    return "", (
        "The browser tests cannot run: no Chromium is on PATH and none could be installed; "
        "install one, or set CHROMIUM to its path."
    )


def _on_path() -> str:
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


def _of_playwright() -> str:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else ""


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _run(*command: str) -> None:
    subprocess.run(command, check=False, stdout=sys.stderr)


if __name__ == "__main__":
    main()
