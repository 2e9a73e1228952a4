"""What the pages say of the tree is what the tree is. Each check is also failed on purpose."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import draw_packages
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
OURS = ("workbench", "tests", "scripts", "notebooks", "extensions")
OF_OTHERS = re.compile(r"^(torch|torchao|transformer_engine|jupyter_\w+|tensorboard)/")


def test_the_packages_are_drawn_as_they_are(capsys) -> None:
    assert draw_packages.main(["--check"]) == 0, capsys.readouterr().out


def test_a_room_that_is_not_drawn_is_seen(tmp_path: Path, capsys) -> None:
    for folder in ("workbench", "docs"):
        shutil.copytree(
            ROOT / folder,
            tmp_path / folder,
            ignore=shutil.ignore_patterns("labextension", "static", "__pycache__", "images"),
        )
    (tmp_path / "workbench/graph/more.py").write_text("import workbench.panel\n")
    assert draw_packages.main(["--check"], tmp_path) == 1
    assert "stale" in capsys.readouterr().out
    assert draw_packages.main([], tmp_path) == 0
    assert "graph --> panel" in (tmp_path / "docs/architecture.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # it speaks of what was, too
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|ts))`", page.read_text())
    there = "".join(f"/{path}\n" for path in _files())
    assert [one for one in named if not OF_OTHERS.match(one) and f"/{one}\n" not in there] == []


def _files() -> list[str]:
    found: list[str] = []
    for place in OURS:
        for folder, inside, names in os.walk(ROOT / place):
            inside[:] = [one for one in inside if one not in ("node_modules", "lib")]
            found += [(Path(folder).relative_to(ROOT) / name).as_posix() for name in names]
    return found
