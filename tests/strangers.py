"""A second user of the machine, as far as this one may become another: as root alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STRANGER = 31_337
"""A number that no user of the machine has; nor is there a group of that number."""

_TEMPORARY = tempfile.gettempdir()

needs_a_stranger = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="needs to be root, to act as a second user",
)

_BECOME = f"""
import os
os.setgroups([])
os.setresgid({STRANGER}, {STRANGER}, {STRANGER})
os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
"""
"""Once Python is there: what it is made of may lie where no other user can read."""

PROGRAM = """
import os, pickle, random
class Program:
    def __init__(self, marker):
        self.marker = marker
    def __reduce__(self):
        return os.mknod, (self.marker,)
"""
"""``Program(path)`` leaves a file there when it is unpickled, by whoever unpickles it."""


def begin_as_stranger(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run Python as the second user; ``sys.argv[1:]`` are the arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{PROGRAM}{_BECOME}\nimport sys\n{code}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def as_stranger(code: str, *arguments: object) -> str:
    """What it prints; fails where it fails."""
    with begin_as_stranger(code, *arguments) as process:
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, f"the second user could not: {said}"
    return said


@contextmanager
def shared_folder(mode: int = 0o777) -> Iterator[Path]:
    """A folder that both users can enter and, by default, write to; its name is as it is given."""
    path = Path(tempfile.mkdtemp(prefix="workbench-shared-", dir=_TEMPORARY)).resolve()
    path.chmod(mode)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
