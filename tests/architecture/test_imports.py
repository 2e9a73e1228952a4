"""Imports run one way, and `import workbench` stays light. Each rule is also broken on purpose."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint_imports(folder: Path) -> tuple[int, str]:
    """Run import-linter's contracts on the package in ``folder``."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as main; main()",
    ]
    command += ["--no-cache", "--config", str(folder / "pyproject.toml")]
    environment = {"PYTHONPATH": str(folder), "PATH": "", "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def broken(tmp_path: Path):
    """A copy of the package, and a way to add a line to one of its modules."""
    shutil.copytree(
        ROOT / "workbench",
        tmp_path / "workbench",
        ignore=shutil.ignore_patterns("labextension", "static", "__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def add(module: str, line: str) -> tuple[int, str]:
        path = tmp_path / "workbench" / module
        path.write_text(path.read_text() + f"\n{line}\n")
        return lint_imports(tmp_path)

    return add


def test_the_contracts_hold() -> None:
    status, said = lint_imports(ROOT)
    assert status == 0, said
    assert "0 broken" in said


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("records/source.py", "import workbench.modes", "imports run one way"),
        ("modes/core/base.py", "import workbench.experiment.report.events", "imports run one way"),
        (
            "experiment/report/events.py",
            "import workbench.panel.channel.hub",
            "imports run one way",
        ),
        ("graph/__init__.py", "import workbench.memory", "imports run one way"),
        (
            "server/run_listing.py",
            "import workbench.modes.core.base",
            "the server sees only records, processes, trust and the allocator",
        ),
        ("allocator/replay/replay.py", "import workbench.modes.core.base", "imports run one way"),
        (
            "allocator/replay/replay.py",
            "import torch",
            "what runs without torch never imports it",
        ),
        (
            "server/run_listing.py",
            "import torch",
            "what runs without torch never imports it",
        ),
        ("metrics/__init__.py", "import anywidget", "widgets are made in one place"),
        (
            "graph/core/walk.py",
            "import workbench.graph.capture.record_builder",
            "a graph is watched, captured, measured, queried, drawn, compared",
        ),
        (
            "experiment/loop/step.py",
            "import workbench.experiment.runtime.runner",
            "an experiment is built from what it is given to how it runs",
        ),
        ("modes/core/base.py", "import workbench.modes.precision", "modes stand on what a mode is"),
        (
            "allocator/simulator/simulator.py",
            "import workbench.allocator.replay",
            "the allocator is decoded, simulated, replayed",
        ),
        (
            "parallel/rank/rank.py",
            "import workbench.parallel.session.session",
            "ranks know nothing of the kernel that they train for",
        ),
        (
            "dynamo/listen/recorder.py",
            "import workbench.dynamo.render.text",
            "a compile report is listened to, explained, drawn",
        ),
        (
            "memory/reading/lifetimes.py",
            "import workbench.experiment.state.user_code",
            "a file is opened and asked about without torch",
        ),
        (
            "records/base.py",
            "import torch.nn",
            "what runs without torch never imports it",
        ),
    ],
)
def test_a_broken_contract_is_seen(broken, module: str, line: str, contract: str) -> None:
    status, said = broken(module, line)
    assert status != 0
    assert f"{contract} BROKEN" in said, said


def loaded_after(statement: str) -> set[str]:
    """The top-level modules loaded by a fresh interpreter that runs ``statement``."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import workbench", {"torch", "IPython", "numpy", "tornado", "anywidget"}),
        ("import workbench; dir(workbench)", {"torch", "IPython"}),
        ("import workbench.records", {"torch", "IPython", "tornado"}),
        ("import workbench.server.extension", {"torch", "tensorboard"}),
        ("import workbench; workbench._jupyter_server_extension_points()", {"torch"}),
        ("import workbench.memory", {"torch", "matplotlib", "anywidget"}),
        # with torch's sharded tensors comes sympy, which together take half as long as torch
        ("import workbench; workbench.Experiment", {"sympy", "tensorboard", "matplotlib"}),
        (
            "from workbench.memory import reading, simulation; "
            "from workbench.memory.files import file_process, from_snapshot, replayed_snapshot; "
            "from workbench.memory.files import selection; "
            "from workbench.memory.render import diff; "
            "from workbench.memory.reading import fragmentation; "
            "from workbench.memory.simulation import questions, what_if",
            {"torch", "matplotlib", "IPython", "tornado", "anywidget"},
        ),
    ],
)
def test_what_an_import_does_not_load(statement: str, absent: set[str]) -> None:
    assert loaded_after(statement) & absent == set()


def test_child_processes_are_started_in_one_place() -> None:
    starters = {"Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec"}
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "workbench").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in starters
        and ast.unparse(node.func.value) in ("subprocess", "asyncio")
        and "labextension" not in path.parts
        and not ast.unparse(node.func).startswith("asyncio.run")
    }
    assert found == {"workbench/processes/start.py"}


def upward_imports_at_run_time(package: Path) -> list[str]:
    """Imports that a contract leaves out although they are made when the program runs.

    A contract leaves out what is imported for type checkers, and the roots of packages, which name
    their parts.
    """
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = configuration["tool"]["importlinter"]["contracts"]
    left_out = {one for contract in contracts for one in contract.get("ignore_imports", ())}
    command = [sys.executable, "-c", _AT_RUN_TIME, *sorted(left_out)]
    done = subprocess.run(
        command, cwd=package.parent, env={"PATH": ""}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


_AT_RUN_TIME = """
import grimp, pathlib, sys, workbench
root = pathlib.Path(workbench.__file__).parent.parent
graph = grimp.build_graph("workbench", cache_dir=None, exclude_type_checking_imports=True)
for expression in sys.argv[1:]:
    for edge in graph.find_matching_direct_imports(expression):
        importer = edge["importer"]
        if not root.joinpath(*importer.split("."), "__init__.py").exists():
            print(importer, "->", edge["imported"])
"""


def test_what_a_contract_leaves_out_is_imported_for_types_alone() -> None:
    assert upward_imports_at_run_time(ROOT / "workbench") == []


def test_an_upward_import_at_run_time_is_seen(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "workbench",
        tmp_path / "workbench",
        ignore=shutil.ignore_patterns("labextension", "static", "__pycache__"),
    )
    path = tmp_path / "workbench" / "experiment" / "loop" / "step.py"
    path.write_text(path.read_text() + "\nimport workbench.experiment.training\n")
    assert upward_imports_at_run_time(tmp_path / "workbench") == [
        "workbench.experiment.loop.step -> workbench.experiment.training"
    ]
