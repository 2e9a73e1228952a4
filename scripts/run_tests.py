"""Run every check and every test, to the end, and say at the end which failed.

``python scripts/run_tests.py [stage ...] [-- arguments for the last stage]``; without a name, all
stages run. What failed is shown again at the end, where a log that was cut off still has it;
pytest's closing line is printed last and kept in ``.cache/pytest-closing-line``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from chromium import find_or_install
from frontend import environment

ROOT = Path(__file__).resolve().parent.parent
CLOSING_LINE = ROOT / ".cache/pytest-closing-line"
PYTHON = sys.executable
_COUNTS = re.compile(r"\d+ (passed|failed|error|skipped|deselected).* in [\d.]+s")
_EVERYTHING = ("-m", "not benchmark and not fuzz")
_SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile")
"""Most tests wait for a kernel, a server or a compiler: two files at a time take half the time."""
_LINES_OF_A_FAILURE = 60
STAGES = ("style", "types", "frontend", "pytest", "ui")


def main(arguments: Sequence[str]) -> int:
    """Run the named stages, or all; the exit status is 0 when none failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names = arguments[:split] or STAGES
    extra = arguments[split + 1 :]
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"No stage {unknown[0]!r}; there are: {', '.join(STAGES)}.")
        return 2
    env = environment()
    # a test has one core: two teams of OpenMP threads on two cores wait for each other
    env.setdefault("OMP_NUM_THREADS", "1")
    if {"pytest", "ui"} & set(names):
        chromium, sentence = find_or_install()
        print(sentence, flush=True)
        env["CHROMIUM"] = chromium
    failed = {name: said for name in names if (said := _run_stage(name, env, extra)) is not None}
    for name, said in failed.items():
        print(f"\n=== {name} failed with:\n{said}")
    print(f"Failed: {', '.join(failed)}." if failed else "Everything passed.")
    if "pytest" in names and CLOSING_LINE.exists():
        print(CLOSING_LINE.read_text().strip())
    return 1 if failed else 0


def _run_stage(name: str, env: dict[str, str], extra: Sequence[str]) -> str | None:
    """Run each command of a stage: the last lines of those that failed, None when none did."""
    started = time.monotonic()
    print(f"\n=== {name}", flush=True)
    ends = [_run(command, folder, env) for command, folder in _commands(name, extra)]
    failed = [end for end in ends if end is not None]
    print(f"=== {name} {'FAILED' if failed else 'passed'} in {time.monotonic() - started:.0f} s")
    return "\n".join(failed) if failed else None


def _commands(name: str, extra: Sequence[str]) -> list[tuple[list[str], Path]]:
    """The commands of a stage, each with the folder it runs in."""
    extensions = ROOT / "extensions"
    if name == "style":
        ruff = [PYTHON, "-m", "ruff"]
        return [([*ruff, "check", "."], ROOT), ([*ruff, "format", "--check", "."], ROOT)]
    if name == "types":
        return [([PYTHON, "-m", "pyright"], ROOT)]
    if name == "frontend":
        return [(["jlpm", "check"], extensions), (["jlpm", "test"], extensions)]
    if name == "ui":
        playwright = str(extensions / "node_modules/.bin/playwright")
        return [([playwright, "test", "-c", "tests/ui/playwright.config.ts", *extra], ROOT)]
    selected = shlex.split(os.environ.get("PYTEST_ARGS", "")) or [*_EVERYTHING, *_SIDE_BY_SIDE]
    return [([PYTHON, "-m", "pytest", "-q", *selected, *extra], ROOT)]


def _run(command: list[str], folder: Path, env: dict[str, str]) -> str | None:
    """Run one command, showing what it prints: its last lines if it failed, or None.

    pytest's closing line is kept.
    """
    is_pytest = "pytest" in command
    if is_pytest:
        CLOSING_LINE.unlink(missing_ok=True)
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        last = ""
        end: deque[str] = deque(maxlen=_LINES_OF_A_FAILURE)
        for line in process.stdout or ():
            print(line, end="", flush=True)
            end.append(line)
            last = line.strip() if _COUNTS.search(line) else last
    if is_pytest:
        CLOSING_LINE.parent.mkdir(exist_ok=True)
        CLOSING_LINE.write_text(last + "\n")
    return None if process.returncode == 0 else "".join(end)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
