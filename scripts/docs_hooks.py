"""What `mkdocs build` does in addition to its plugins: the notebooks are pages, where they are.

MkDocs reads one folder, ``docs``; links between the two folders are turned as the pages are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent


@event_priority(100)  # before mkdocs-jupyter, which makes pages of what is listed
def on_files(files: Files, *, config: Any) -> Files:
    """Add every notebook."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(
            File(
                path=path.relative_to(ROOT).as_posix(),
                src_dir=str(ROOT),
                dest_dir=config.site_dir,
                use_directory_urls=config.use_directory_urls,
            )
        )
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links of pages to notebooks: on GitHub they are next to ``docs``, here below it."""
    return markdown.replace("](../notebooks/", "](notebooks/")


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Links of notebooks, which MkDocs leaves as they are: to each other, and to pages."""
    if not page.file.src_uri.startswith("notebooks/"):
        return html
    html = re.sub(r'href="(\w+)\.ipynb', r'href="../\1/', html)
    return re.sub(r'href="\.\./docs/(\w+)\.md', r'href="../../\1/', html)
