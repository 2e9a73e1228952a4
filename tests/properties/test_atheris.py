"""What coverage guides a fuzzer to: the values of a snapshot, a reader's answer, record files.

Needs `atheris`, which `make fuzz` installs where there is a build of it (Linux, and not the newest
Python); elsewhere `tests.properties.test_snapshot_files` and `test_record_fuzz` try what chance
finds.
"""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUZZ_S = 150


@pytest.mark.fuzz
@pytest.mark.parametrize("target", ["atheris_snapshots", "atheris_records"])
def test_atheris_finds_nothing(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip(
            "atheris is not installed: `make fuzz` installs it where PyPI has a build, and this is "
            f"{platform.python_implementation()} {platform.python_version()} on "
            f"{platform.system()} {platform.machine()}"
        )
    command = [
        sys.executable, "-m", f"tests.properties.{target}",
        f"-max_total_time={FUZZ_S}", "-len_control=0", f"-artifact_prefix={tmp_path}/",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stderr[-400:])
    assert done.returncode == 0, done.stderr[-4000:]
