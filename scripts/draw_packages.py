"""Draw the packages, their imports and their rooms into ``docs/architecture.md``.

``python scripts/draw_packages.py`` writes what stands between the two marks of the page;
``--check`` writes nothing and fails when the page is stale. What a room is for is the first
sentence of its ``__init__.py``; imports that are there for types alone do not count.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "workbench"
PAGE = "docs/architecture.md"
BEGIN, END = (
    "<!-- drawn by scripts/draw_packages.py: begin -->",
    "<!-- drawn by scripts/draw_packages.py: end -->",
)
BUILT = {"labextension", "static", "templates", "__pycache__"}
"""Folders of the package that hold no Python of its own."""


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write or check the page; the exit status."""
    page = root / PAGE
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        print(f"{PAGE} has no place for the drawing: it needs the lines {BEGIN} and {END}")
        return 2
    new = f"{before}{BEGIN}\n{drawing(root)}{END}{after}"
    if new == text:
        return 0
    if "--check" in arguments:
        print(f"{PAGE} is stale: run python scripts/draw_packages.py")
        return 1
    page.write_text(new)
    return 0


def drawing(root: Path) -> str:
    """Two sections in Markdown: a diagram of the packages, a table of the rooms."""
    files = sorted(_files(root / PACKAGE))
    imports = {path: set(_imported(path)) for path in files}
    return f"\n{_diagram(imports, root)}\n{_table(files, root)}\n"


def _files(package: Path) -> Iterator[Path]:
    for path in package.rglob("*.py"):
        if not BUILT & set(path.relative_to(package).parts):
            yield path


def _package(path: Path, root: Path) -> str:
    """``graph`` for any file below ``workbench/graph``; ``""`` for the root's own."""
    parts = path.relative_to(root / PACKAGE).parts
    return parts[0].removesuffix(".py").removeprefix("__init__")


def _imported(path: Path) -> Iterator[str]:
    """Packages that a file imports as it runs, now or later."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_for_types(node.test):
            waiting += node.orelse
            continue
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr)]
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            first, *others = module.split(".")
            if first == PACKAGE and others:
                yield others[0]


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _diagram(imports: dict[Path, set[str]], root: Path) -> str:
    packages = {_package(path, root) for path in imports} - {""}
    direct: dict[str, set[str]] = defaultdict(set)
    for path, found in imports.items():
        own = _package(path, root)
        direct[own] |= (found & packages) - {own}
    lines = ["```mermaid", "graph TD"]
    for one in sorted(packages):
        others = sorted(direct[one] - _reached_by_others(one, direct))
        lines += [f"  {one} --> {other}" for other in others]
    return "\n".join([*lines, "```", ""])


def _reached_by_others(package: str, direct: dict[str, set[str]]) -> set[str]:
    """What is imported by something that ``package`` imports: its arrow would say nothing new."""
    seen: set[str] = set()
    waiting = [one for other in direct[package] for one in direct[other]]
    while waiting:
        one = waiting.pop()
        if one not in seen and one != package:
            seen.add(one)
            waiting += direct[one]
    return seen


def _table(files: list[Path], root: Path) -> str:
    num_files = Counter(path.parent.relative_to(root / PACKAGE) for path in files)
    lines = ["| room | is for | files |", "| --- | --- | ---: |"]
    for room in sorted(num_files):
        if room == Path():
            continue
        lines.append(
            f"| `{room.as_posix()}` | {_purpose(root / PACKAGE / room)} | {num_files[room]} |"
        )
    return "\n".join([*lines, ""])


def _purpose(room: Path) -> str:
    doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    return " ".join(doc.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
