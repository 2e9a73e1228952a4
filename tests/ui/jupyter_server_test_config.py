"""The Jupyter server of the UI tests: this checkout's build, in a folder of its own.

Galata's helper switches every protection off. Tests only; `tests/server` checks the protections.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyterlab.galata import configure_jupyter_server

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821 - traitlets provides it
configure_jupyter_server(c)

checkout = Path(__file__).resolve().parents[2]
sys.path.append(str(Path(__file__).resolve().parent))
labextension = checkout / "workbench" / "labextension"
if not (labextension / "package.json").exists():
    raise SystemExit("the extension is not built: run `make lab` or `make ui` first")

# The tests look at this checkout, whatever is installed beside it.
extensions = Path(tempfile.mkdtemp(prefix="workbench-labextensions-"))
(extensions / "torch-workbench").symlink_to(labextension)
c.LabServerApp.extra_labextensions_path = [
    c.LabServerApp.extra_labextensions_path,
    str(extensions),
]
c.ServerApp.jpserver_extensions = {"workbench": True}
c.JupyterNotebookApp.expose_app_in_browser = True  # Notebook 7, which the same server has
c.ServerApp.port = int(os.environ.get("WORKBENCH_UI_PORT", "8899"))
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.allow_root = True
python_path = [str(checkout), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))

# As nearly everywhere, the root lies below the home: the page is told ``~/...`` of it.
os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache/matplotlib"))
os.environ["HOME"] = str(Path(c.ServerApp.root_dir).parent)

# Kernels find compiled what an earlier one compiled, and start no processes to compile in.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(checkout / ".cache/inductor"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

from warm_kernels import use_warm_kernels  # noqa: E402 - needs the path set above

use_warm_kernels()
