"""When the front end is rebuilt, with which Node, and from which registry."""

from __future__ import annotations

import os
import re
from pathlib import Path

import frontend
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with a built front end."""
    files = {
        "extensions/package.json": "{}",
        "extensions/views/src/a.ts": "a",
        "extensions/views/test/a.test.ts": "t",
        "extensions/views/lib/a.js": "built",
        "extensions/node_modules/x/index.js": "x",
        "workbench/static/panel.js": "panel",
        "workbench/labextension/package.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "workbench/static/sources.sha256").write_text(frontend.digest(tmp_path) + "\n")
    return tmp_path


def test_a_fresh_build_is_left_alone(tree: Path) -> None:
    assert not frontend.is_stale(tree)


@pytest.mark.parametrize("change", ["views/src/a.ts", "views/src/new.css", "yarn.lock"])
def test_a_changed_or_new_source_makes_it_stale(tree: Path, change: str) -> None:
    (tree / "extensions" / change).write_text("changed")
    assert frontend.is_stale(tree)


def test_a_renamed_source_makes_it_stale(tree: Path) -> None:
    source = tree / "extensions/views/src/a.ts"
    source.rename(source.with_name("b.ts"))
    assert frontend.is_stale(tree)


@pytest.mark.parametrize("change", ["views/test/a.test.ts", "views/lib/a.js", "node_modules/y.js"])
def test_what_is_no_source_does_not(tree: Path, change: str) -> None:
    (tree / "extensions" / change).write_text("changed")
    assert not frontend.is_stale(tree)


@pytest.mark.parametrize(
    "missing", ["static/panel.js", "labextension/package.json", "static/sources.sha256"]
)
def test_a_missing_output_makes_it_stale(tree: Path, missing: str) -> None:
    (tree / "workbench" / missing).unlink()
    assert frontend.is_stale(tree)


def program(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "fits"), [("v18.20.1", False), ("v20.0.0", True), ("v24.1.0", True), ("?", False)]
)
def test_an_old_node_does_not_fit(tmp_path: Path, version: str, fits: bool) -> None:
    program(tmp_path, "node", version)
    assert (frontend.fitting_node(str(tmp_path)) is not None) == fits


def test_no_node_does_not_fit(tmp_path: Path) -> None:
    assert frontend.fitting_node(str(tmp_path)) is None


def test_yarn_asks_the_registry_npm_is_configured_with(tmp_path: Path) -> None:
    program(tmp_path, "node", "v24.0.0")
    program(tmp_path, "npm", "http://npm.example:4873/mirror/")
    env = frontend.environment({"PATH": f"{tmp_path}{os.pathsep}/bin"})
    assert env["YARN_NPM_REGISTRY_SERVER"] == "http://npm.example:4873/mirror"
    assert env["YARN_UNSAFE_HTTP_WHITELIST"] == "npm.example"
    chosen = {"PATH": str(tmp_path), "YARN_NPM_REGISTRY_SERVER": "https://mine.example"}
    assert frontend.environment(chosen)["YARN_NPM_REGISTRY_SERVER"] == "https://mine.example"


def test_the_lock_file_names_no_host() -> None:
    """A lock file with addresses in it would send every user to one machine's registry."""
    assert re.findall(r"https?://\S+", (ROOT / "extensions/yarn.lock").read_text()) == []
