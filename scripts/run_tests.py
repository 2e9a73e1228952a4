"""Run the checks and tests, say what each takes, and how to run again what failed.

``python scripts/run_tests.py quick`` is `make test`, ``rest`` is what `make test-all` adds to it,
and ``all`` is both. A stage of its own can be named instead, and what follows ``--`` goes to its
last command. Which Python tests are quick, `tests/conftest.py` decides. ``python
scripts/run_tests.py sum quick rest`` adds up what was counted before, in pytest's form.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree as ET

from chromium import find_or_install
from frontend import environment

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".cache/test-results"
PYTHON = sys.executable
JOURNEY = "tests/ui/journey.spec.ts"

QUICK = ("style", "types", "frontend", "python", "journey")
REST = ("python-rest", "browser")
STAGES = {
    "style": "ruff: lint rules and formatting",
    "types": "pyright, strict",
    "frontend": "types, style and unit tests of the TypeScript",
    "python": "Python tests that need no second process of long life",
    "journey": "one person's way through JupyterLab, and the first notebook, in Chromium",
    "python-rest": "Python tests with kernels, servers, ranks, compilers, a JupyterHub",
    "browser": "everything else a person does in JupyterLab, the other notebooks, in Chromium",
    "pytest": "all Python tests, or those that PYTEST_ARGS names",
    "ui": "all browser tests, or those that UI_ARGS names",
}
GROUPS = {"quick": QUICK, "rest": REST, "all": (*QUICK, *REST)}
_BROWSER = {"journey", "browser", "ui", "python-rest", "pytest"}
"""Stages that need Chromium."""
_NEVER = "not benchmark and not fuzz"
_SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Most tests wait for a kernel, a server or a compiler: two files at a time take half the time."""
_RUNS_WITH = {"types": "frontend"}
"""A stage that needs one core runs at the same time as one that does not always need two."""
_LINES_OF_A_FAILURE = 60
_OF_PLAYWRIGHT = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) flaky")
_OF_VITEST = re.compile(r"^\s*Tests\s+(?:(\d+) failed \| )?(\d+) passed")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MOST_REASONS = 6


@dataclass
class Stage:
    """What became of one stage."""

    name: str
    seconds: float = 0.0
    failed: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    """``passed``, ``failed``, ``error``, ``skipped``; empty for a check."""
    again: list[str] = field(default_factory=list)
    """A command for each test that failed."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Why tests were skipped here, and how many."""
    end: str = ""
    """The last lines of what failed."""


def main(arguments: Sequence[str]) -> int:
    """Run the named stages or groups; the exit status is 0 when none failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, extra = list(arguments[:split]), arguments[split + 1 :]
    if names[:1] == ["sum"]:
        print(sum_of([stage for group in names[1:] for stage in load(group)]))
        return 0
    known = {**GROUPS, **{name: (name,) for name in STAGES}}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"No stage {unknown[0]!r}" if unknown else "Name a stage or a group"
        print(f"{what}; there are: {', '.join(known)}.")
        return 2
    started = time.monotonic()
    env = _environment()
    wanted = [stage for name in names for stage in known[name]]
    for name in names:
        (RESULTS / f"{name}.json").unlink(missing_ok=True)
    if _BROWSER & set(wanted):
        chromium, sentence = find_or_install()
        print(sentence, flush=True)
        env["CHROMIUM"] = chromium
    done = run_stages(wanted, env, extra)
    for name in names:
        keep(name, [stage for stage in done if stage.name in known[name]])
    print(report(done, time.monotonic() - started, left_out=_left_out(names)), flush=True)
    return 1 if any(stage.failed for stage in done) else 0


def _environment() -> dict[str, str]:
    env = environment()
    # a test has one core: two teams of OpenMP threads on two cores wait for each other
    env.setdefault("OMP_NUM_THREADS", "1")
    # hundreds of processes import the package: each would compile it again
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


# --- stages -------------------------------------------------------------------------------------


def run_stages(names: Sequence[str], env: dict[str, str], extra: Sequence[str] = ()) -> list[Stage]:
    """Run stages one after the other, except for those in `_RUNS_WITH`.

    What such a stage prints comes as a whole, after what the other one printed.
    """
    done: list[Stage] = []
    with ThreadPoolExecutor(1) as pool:
        for name in names:
            if _RUNS_WITH.get(name) in names:
                continue
            together = [
                (pool.submit(run_stage, one, env, extra, output := io.BytesIO()), output)
                for one in names
                if _RUNS_WITH.get(one) == name
            ]
            stage = run_stage(name, env, extra)
            for future, output in together:
                done.append(future.result())
                sys.stdout.buffer.write(output.getvalue())
                sys.stdout.buffer.flush()
            done.append(stage)
    return done


def run_stage(
    name: str, env: dict[str, str], extra: Sequence[str] = (), out: BinaryIO | None = None
) -> Stage:
    """Run each command of a stage, to the end, whatever one of them comes to.

    What it prints goes to ``out``, or to the standard output as it comes.
    """
    shown = out or sys.stdout.buffer
    _print(shown, f"\n=== {name}: {STAGES[name]}")
    stage, started = Stage(name), time.monotonic()
    for command, folder in commands(name, extra):
        status, lines = _run(command, folder, env, shown)
        _count(stage, lines)
        if status:
            stage.failed = True
            stage.end += "".join(lines[-_LINES_OF_A_FAILURE:])
    if (found := _junit(name)).exists():
        _read_junit(stage, found)
    stage.seconds = time.monotonic() - started
    outcome = "FAILED" if stage.failed else "passed"
    _print(shown, f"=== {name} {outcome} in {_time(stage.seconds)}")
    return stage


def _print(shown: BinaryIO, line: str) -> None:
    shown.write(f"{line}\n".encode())
    shown.flush()


def commands(name: str, extra: Sequence[str] = ()) -> list[tuple[list[str], Path]]:
    """The commands of a stage, each with the folder it runs in."""
    extensions = ROOT / "extensions"
    if name == "style":
        ruff = [PYTHON, "-m", "ruff"]
        return [([*ruff, "check", "."], ROOT), ([*ruff, "format", "--check", "."], ROOT)]
    if name == "types":
        return [([PYTHON, "-m", "pyright"], ROOT)]
    if name == "frontend":
        return [(["jlpm", "check"], extensions), (["jlpm", "test"], extensions)]
    if name in ("journey", "browser", "ui"):
        playwright = str(extensions / "node_modules/.bin/playwright")
        which = {"journey": [JOURNEY], "browser": ["--grep-invert", "@journey"], "ui": []}[name]
        config = ["-c", "tests/ui/playwright.config.ts"]
        return [([playwright, "test", *config, *which, *extra], ROOT)]
    which = {"python": f"not slow and {_NEVER}", "python-rest": f"slow and {_NEVER}"}
    chosen = ["-m", which.get(name, _NEVER), *_SIDE_BY_SIDE]
    if name == "pytest" and (given := shlex.split(os.environ.get("PYTEST_ARGS", ""))):
        chosen = given
    return [([PYTHON, "-m", "pytest", "-q", f"--junitxml={_junit(name)}", *chosen, *extra], ROOT)]


def _run(
    command: list[str], folder: Path, env: dict[str, str], shown: BinaryIO
) -> tuple[int, list[str]]:
    """Run one command, showing what it prints: its exit status and its lines."""
    for option in command:
        if option.startswith("--junitxml="):
            Path(option.partition("=")[2]).unlink(missing_ok=True)
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        output = bytearray()
        # as it comes: a line of dots is whole only once there are eighty of them
        while process.stdout is not None and (part := os.read(process.stdout.fileno(), 65536)):
            output += part
            shown.write(part)
            shown.flush()
    return process.returncode, output.decode("utf-8", "replace").splitlines(keepends=True)


def _junit(name: str) -> Path:
    return RESULTS / f"{name}.xml"


# --- counting -----------------------------------------------------------------------------------


def _count(stage: Stage, lines: Sequence[str]) -> None:
    """Add what Playwright and Vitest say of themselves, and how to run again what failed."""
    for line in map(_plain, lines):
        if found := _OF_PLAYWRIGHT.match(line):
            passed, failed, flaky = map(int, found.groups())
            _add(stage, passed=passed + flaky, failed=failed)
        elif found := _OF_VITEST.match(line):
            _add(stage, passed=int(found[2]), failed=int(found[1] or 0))
        elif line.startswith("  make ui UI_ARGS="):
            stage.again.append(line.strip())


def _plain(line: str) -> str:
    return _COLOUR.sub("", line).rstrip()


def _add(stage: Stage, **counts: int) -> None:
    for name, number in counts.items():
        stage.counts[name] = stage.counts.get(name, 0) + number


def _read_junit(stage: Stage, path: Path) -> None:
    """Add what pytest wrote down of every test."""
    try:
        cases = list(ET.parse(path).getroot().iter("testcase"))  # noqa: S314 - our own file
    except ET.ParseError:  # it was ended before it was done, and says so itself
        return
    reasons: Counter[str] = Counter()
    for case in cases:
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        _add(stage, passed=int(not kinds))
        for kind in kinds:
            _add(stage, **{{"failure": "failed"}.get(kind, kind): 1})
        if kinds - {"skipped"}:
            stage.again.append(f"make test PYTEST_ARGS={_for_make(shlex.quote(node_id(case)))}")
        elif (skip := case.find("skipped")) is not None:
            reasons[_reason(skip)] += 1
    stage.skipped = dict(reasons.most_common())


def node_id(case: ET.Element) -> str:
    """What pytest calls a test, of what it writes down: module, classes, name."""
    module, classes = case.get("classname", "").split("."), list[str]()
    while module and not (ROOT / Path(*module)).with_suffix(".py").exists():
        classes.insert(0, module.pop())
    if not module:  # a file that could not be imported goes by its dotted name alone
        name = case.get("name", "")
        file = Path(*name.split(".")).with_suffix(".py") if name else Path()
        return file.as_posix() if (ROOT / file).is_file() else name
    return "::".join([f"{'/'.join(module)}.py", *classes, case.get("name", "")])


def _for_make(arguments: str) -> str:
    """Arguments of pytest, for a shell that hands them to make as one value."""
    return shlex.quote(arguments.replace("$", "$$"))


def _reason(skip: ET.Element) -> str:
    """Without what differs from one test to the next."""
    text = (skip.get("message") or skip.text or "without a reason").strip()
    return re.sub(r"^Skipped: ", "", text).splitlines()[0]


def keep(name: str, stages: Sequence[Stage]) -> None:
    """Write down what was counted, for `sum`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(stage) for stage in stages])
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def load(name: str) -> list[Stage]:
    """What `keep` wrote down; one failure where nothing was, as it never ran to its end."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return [Stage(name, failed=True, counts={"error": 1})]
    return [Stage(**stage) for stage in json.loads(path.read_text(encoding="utf-8"))]


def sum_of(stages: Sequence[Stage]) -> str:
    """All counts in pytest's form: ``2 failed, 3000 passed, 85 skipped in 2400.00s``.

    A check that failed counts as one failure: it has no tests that could.
    """
    total: Counter[str] = Counter()
    for stage in stages:
        total.update(stage.counts)
        reported = stage.counts.get("error") or stage.counts.get("failed")
        if stage.failed and not stage.again and not reported:
            total["failed"] += 1
    counts = [
        f"{total[name]} {name}" for name in ("failed", "passed", "skipped", "error") if total[name]
    ]
    return f"{', '.join(counts) or 'no tests ran'} in {sum(one.seconds for one in stages):.2f}s"


# --- the report at the end ----------------------------------------------------------------------


def report(stages: Sequence[Stage], seconds: float, left_out: str) -> str:
    """What failed and how to run it again, what was skipped, times, and what was left out."""
    lines: list[str] = []
    for stage in stages:
        if stage.failed:
            lines += ["", f"=== {stage.name} failed with:", stage.end.rstrip()]
    again = [command for stage in stages for command in stage.again]
    if again:
        lines += ["", "Each of these runs one of the tests again that failed:"]
        lines += [f"  {command}" for command in again]
    lines += ["", *_table(stages), f"  {'all':<12} {_time(seconds):>10}"]
    reasons: Counter[str] = Counter()
    for stage in stages:
        reasons.update(stage.skipped)
    if reasons:
        lines += ["", f"Skipped on this machine, {reasons.total():,} tests:"]
        lines += [f"  {count:>5}  {why}" for why, count in reasons.most_common(_MOST_REASONS)]
        if len(reasons) > _MOST_REASONS:
            lines.append(f"         and {len(reasons) - _MOST_REASONS} more reasons")
    failed = [stage.name for stage in stages if stage.failed]
    lines += ["", left_out] if left_out else []
    lines += ["", f"Failed: {', '.join(failed)}." if failed else "Everything passed."]
    lines += [sum_of(stages)]
    return "\n".join(lines)


def _table(stages: Sequence[Stage]) -> list[str]:
    return [
        f"  {stage.name:<12} {_time(stage.seconds):>10}  {_outcome(stage)}".rstrip()
        for stage in stages
    ]


def _outcome(stage: Stage) -> str:
    text = ", ".join(f"{n:,} {name}" for name, n in stage.counts.items() if n)
    return text or ("failed" if stage.failed else "passed")


def _left_out(names: Sequence[str]) -> str:
    """What the quick stages leave out."""
    if "quick" not in names or "rest" in names:
        return ""
    return (
        "Left out: Python tests that start kernels, servers, ranks and compilers "
        "(tests/integration, tests/server, tests/hub, tests/gpu) and all browser tests but the "
        "main journey: make test-all runs both. Measurements: make bench. Fuzzing: make fuzz."
    )


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
