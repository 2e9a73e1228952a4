"""What a run of the tests says at its end, of real output of the tools that it runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import run_tests
from run_tests import GROUPS, STAGES, Stage, commands, keep, load, report, run_stage, sum_of

TESTS = """
import pytest

class TestKinds:
    def test_good(self): pass
    @pytest.mark.parametrize("name", ["a b", "c"])
    def test_bad(self, name): assert name == "c"

@pytest.fixture
def broken(): raise OSError("no")

def test_error(broken): pass

@pytest.mark.skip(reason="needs CUDA")
def test_skipped(): pass

@pytest.mark.slow
def test_deselected(): pass
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one file of tests, in whose place the stages run."""
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path / "results")
    return tmp_path


def stage_of(tree: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Stage:
    junit = f"--junitxml={tree / 'results/python.xml'}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", junit, *arguments]
    monkeypatch.setattr(run_tests, "commands", lambda name, extra: [(command, tree)])
    return run_stage("python", {})


def test_what_failed_is_counted_and_can_be_run_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(tree, monkeypatch, "-m", "not slow")
    assert stage.failed
    assert stage.counts == {
        "passed": 2, "failed": 1, "error": 1, "skipped": 1
    }  # fmt: skip
    assert stage.skipped == {"needs CUDA": 1}
    assert stage.again == [
        """make test PYTEST_ARGS=''"'"'tests/unit/test_it.py::TestKinds::test_bad[a b]'"'"''""",
        "make test PYTEST_ARGS=tests/unit/test_it.py::test_error",
    ]
    text = report([stage], 61.4, "Left out: much.")
    assert "AssertionError" in text
    assert all(command in text for command in stage.again)
    assert "1  needs CUDA" in text
    assert "1 min 01 s" in text
    assert text.splitlines()[-2:] == [
        "Failed: python.",
        f"1 failed, 2 passed, 1 skipped, 1 error in {stage.seconds:.2f}s",
    ]
    # as it is printed: through a shell, and through make
    (tree / "Makefile").write_text(
        'PYTEST_ARGS ?=\nexport PYTEST_ARGS\ntest:\n\t@printf %s "$$PYTEST_ARGS"\n'
    )
    # not as a part of the make that may run this test, which says which folder it enters
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    told = subprocess.run(
        stage.again[0], shell=True, cwd=tree, capture_output=True, check=True, env=env
    )
    chosen = shlex.split(told.stdout.decode())
    done = subprocess.run([sys.executable, "-m", "pytest", *chosen], cwd=tree, capture_output=True)
    assert b"1 failed" in done.stdout


def test_make_hands_arguments_on_as_they_are() -> None:
    """`make test` reads them from its environment: no shell takes them apart before."""
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert "\nexport PYTEST_ARGS\n" in makefile
    recipe = makefile.partition("\ntest: ")[2].splitlines()[1]
    assert '"$(PYTEST_ARGS)"' not in recipe


def test_a_file_that_cannot_be_imported_is_run_again_by_its_path(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "tests/unit/test_broken.py").write_text("import nothing_of_that_name")
    stage = stage_of(tree, monkeypatch)
    assert stage.counts["error"] == 1
    assert stage.again == ["make test PYTEST_ARGS=tests/unit/test_broken.py"]


def test_a_run_that_ends_before_its_tests_is_a_failure(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "tests/unit/conftest.py").write_text("import os; os._exit(3)")
    stage = stage_of(tree, monkeypatch)
    assert stage.failed
    assert sum_of([stage]).startswith("1 failed in ")


def test_the_browsers_and_the_front_ends_tests_are_counted(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "      \x1b[2mTests \x1b[22m \x1b[1m\x1b[31m2 failed\x1b[39m | 612 passed\x1b[22m (614)\n"
        "These tests failed; each line runs one of them again:\n"
        "  make ui UI_ARGS='tests/ui/a.spec.ts:12'\n"
        "\n76 passed, 1 failed, 1 flaky in 700 s"
    )
    (tree / "tool.py").write_text(f"import sys\nprint({said!r})\nsys.exit(1)")
    program = [sys.executable, str(tree / "tool.py")]
    monkeypatch.setattr(run_tests, "commands", lambda name, extra: [(program, tree)])
    stage = run_stage("browser", {})
    assert stage.counts == {"passed": 612 + 77, "failed": 3}
    assert stage.again == ["make ui UI_ARGS='tests/ui/a.spec.ts:12'"]
    assert sum_of([stage]).startswith("3 failed, 689 passed in")


def test_what_two_commands_counted_is_added_up(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(
        "quick",
        [Stage("style", 10.0), Stage("python", 300.0, counts={"passed": 5})],
    )
    keep("rest", [Stage("python-rest", 600.5, True, {"passed": 6, "failed": 1}, ["make test"])])
    assert run_tests.main(["sum", "quick", "rest"]) == 0
    assert capsys.readouterr().out == "1 failed, 11 passed in 910.50s\n"
    keep("rest", [Stage("types", 5.0, failed=True)])
    assert sum_of(load("quick") + load("rest")) == "1 failed, 5 passed in 315.00s"
    (tree / "results/rest.json").unlink()
    assert "1 error" in sum_of(load("quick") + load("rest")), "it never came to its end"


def test_an_unknown_stage_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_tests.main(["stile"]) == 2
    said = capsys.readouterr().out
    assert "No stage 'stile'" in said
    assert all(name in said for name in (*STAGES, *GROUPS))


def test_together_the_two_commands_run_every_test_once() -> None:
    """One takes what the other leaves: of Python by a marker, of browser tests by a tag."""
    chosen = {name: " ".join(commands(name)[0][0]) for name in ("python", "python-rest")}
    assert "-m not slow and not benchmark and not fuzz" in chosen["python"]
    assert "-m slow and not benchmark and not fuzz" in chosen["python-rest"]
    journey = Path(run_tests.ROOT, run_tests.JOURNEY)
    specs = [path for path in journey.parent.glob("*.spec.ts") if "@journey" in path.read_text()]
    assert specs == [journey]
    assert run_tests.JOURNEY in commands("journey")[0][0]
    assert commands("browser")[0][0][-2:] == ["--grep-invert", "@journey"]
    assert set(GROUPS["all"]) == set(STAGES) - {"pytest", "ui"}


def test_types_are_checked_beside_the_front_end_and_say_what_they_say_as_a_whole(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    met, waits = tree / "met", "import pathlib, sys, time; met = pathlib.Path(sys.argv[1]);"
    code = {  # each waits for the other: one after the other they would for ever
        "types": f"{waits} print('types 1'); (met / 't').touch()\n"
        "while not (met / 'f').exists(): time.sleep(0.01)\nprint('types 2')",
        "frontend": f"{waits} print('front 1'); (met / 'f').touch()\n"
        "while not (met / 't').exists(): time.sleep(0.01)\nprint('front 2'); sys.exit(3)",
        "style": f"{waits} print('style')",
    }
    met.mkdir()
    monkeypatch.setattr(
        run_tests,
        "commands",
        lambda name, extra: [([sys.executable, "-u", "-c", code[name], str(met)], tree)],
    )
    done = run_tests.run_stages(["style", "types", "frontend"], {**os.environ})
    assert [(stage.name, stage.failed) for stage in done] == [
        ("style", False), ("types", False), ("frontend", True)
    ]  # fmt: skip
    said = capfdbinary.readouterr().out.decode().split("\n")
    words = [line for line in said if line and "===" not in line]
    assert words == ["style", "front 1", "front 2", "types 1", "types 2"]
    # a stage that is named alone has nothing beside it
    assert [one.name for one in run_tests.run_stages(["types"], {**os.environ})] == ["types"]
