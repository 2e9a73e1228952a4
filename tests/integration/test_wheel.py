"""A wheel of this tree installs where there is no Node, and Jupyter finds both its halves.

The environment is new and holds only the wheel; the libraries Workbench depends on are taken from
the environment the tests run in, through a ``.pth`` file, because downloading torch again would
test the network. Workbench itself is hidden there: what is imported is what the wheel installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import frontend
import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return what it printed; fails with it when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        cwd=Path(str(command[0])).parent,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree as it is."""
    if frontend.is_stale(ROOT):
        frontend.build(ROOT)
    folder = tmp_path_factory.mktemp("wheel")
    # no isolation, because this environment has hatchling; no PATH, so nothing can run Node
    run(
        sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet",
        "--wheel-dir", folder, ROOT, PATH=str(folder),
    )  # fmt: skip
    (found,) = folder.glob("torch_workbench-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel in it."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps",
        "--ignore-installed", wheel, PATH=str(home),
    )  # fmt: skip
    return home / "bin"


def test_contents(wheel: Path) -> None:
    """The front end, the templates and Jupyter's files are in it; sources and tests are not."""
    names = set(zipfile.ZipFile(wheel).namelist())
    data = f"{wheel.name.rsplit('-', 3)[0]}.data/data/"
    assert data + "etc/jupyter/jupyter_server_config.d/torch-workbench.json" in names
    extension = data + "share/jupyter/labextensions/torch-workbench/"
    assert {extension + "package.json", extension + "install.json"} <= names
    assert any(name.startswith(extension + "static/remoteEntry") for name in names)
    assert any(name.startswith(extension + "schemas/") for name in names)
    built = [file.name for file in (ROOT / "workbench/static").iterdir()]
    fronts = [name for name in built if name.endswith((".js", ".css"))]
    assert {"graph.js", "graph.css"} <= set(fronts)
    assert {f"workbench/static/{name}" for name in fronts} <= names
    assert "workbench/templates/classifier.ipynb" in names
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "workbench").rglob("*.html")}
    assert "workbench/dtypes/types.html" in pages
    assert {page for page in pages if "labextension" not in page} <= names
    assert not [name for name in names if name.startswith(("tests/", "extensions/", "scripts/"))]
    assert wheel.stat().st_size < 5_000_000


def test_a_source_distribution_builds_without_node(wheel: Path, tmp_path: Path) -> None:
    """It brings the built front end, and its sources are those the build was made from."""
    code = "import sys; from hatchling.build import build_sdist; print(build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("torch_workbench-*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path)
    (tree,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert not frontend.is_stale(tree)
    assert not list(tree.glob("**/node_modules"))
    assert archive.stat().st_size < 5_000_000


def test_no_path_of_the_building_machine_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), name


def test_both_extensions_are_enabled(installed: Path) -> None:
    environment = {
        "PATH": str(installed),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(installed.parent / "config"),
        "JUPYTER_DATA_DIR": str(installed.parent / "data"),
    }
    assert shutil.which("node", path=environment["PATH"]) is None
    python = installed / "python"
    # the modules behind `jupyter labextension` and `jupyter server extension`, whose scripts are
    # in the borrowed environment
    listed = run(python, "-m", "jupyterlab.labextensions", "list", **environment)
    (line,) = [line for line in listed.splitlines() if "torch-workbench" in line]
    assert "enabled" in line
    assert "OK" in line
    assert str(installed.parent) in listed
    listed = run(python, "-m", "jupyter_server.extension.serverextension", "list", **environment)
    assert any("workbench" in line and "enabled" in line for line in listed.splitlines())
    assert "workbench 0.1.0" in listed.replace("\x1b[32m", "")


def test_what_is_imported_came_from_the_wheel(installed: Path) -> None:
    code = "import workbench, json; print(json.dumps([workbench.__file__, workbench.__version__]))"
    said = run(installed / "python", "-c", code, PATH=str(installed))
    file, version = json.loads(said.splitlines()[-1])
    assert file.startswith(str(installed.parent))
    assert version == "0.1.0"
