"""`make docs`: every page, the notebooks and the API reference, built without a warning."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def words(page: Path) -> str:
    """What a page says: without markup, blanks as one."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page.read_text())).split())


@pytest.mark.parametrize("name", wb.__all__)
def test_every_public_name_has_a_page_that_says_what_it_is_for(name: str, site: Path) -> None:
    first, _, _ = (getattr(wb, name).__doc__ or "").partition("\n\n")
    plain = " ".join(re.sub(r"`+", "", first).split())
    assert plain[:60] in words(site / "reference" / name / "index.html")


def test_every_link_within_the_pages_leads_somewhere(site: Path) -> None:
    lost = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("index.html")
        for link in re.findall(r'href="([^"#:?]+)(?:#[^"]*)?"', page.read_text())
        if not link.startswith("/") and not _leads(page.parent / link)
    ]
    assert lost == []


def _leads(path: Path) -> bool:
    return path.is_file() or (path / "index.html").is_file()


def test_notebooks_are_pages_with_what_their_cells_gave(site: Path) -> None:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = (site / "notebooks" / path.stem / "index.html").read_text()
        assert page.count("jp-OutputArea-output") > 5, path.name
