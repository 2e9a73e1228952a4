"""Real Jupyter servers as subprocesses, and a browser's view of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.processes import children_of
from tests.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-the-tests"
LOSSES = [2.5, 1.25, 0.625, 0.3125]


def write_events(run: Path, tag: str = "train/loss") -> None:
    """A real event file with `LOSSES` at steps 0 to 3."""
    writer = EventFileWriter(str(run))
    for step, value in enumerate(LOSSES):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
    writer.close()


@dataclass
class Server:
    """A running ``jupyter server``, and a browser's view of it."""

    process: subprocess.Popen[bytes]
    root: Path
    base: str
    """``http://127.0.0.1:<port>/<base_url>/workbench/``"""
    session: requests.Session = field(default_factory=requests.Session)

    def log_in(self) -> None:
        """Get the login and XSRF cookies, as a browser does."""
        self.session.get(self.base.replace("workbench/", f"tree?token={TOKEN}"))
        self.session.get(self.base.replace("workbench/", "lab"))

    def ask(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        """Send a request as a page of this server would."""
        headers = {
            "Sec-Fetch-Site": "same-origin",
            "X-XSRFToken": self.session.cookies.get("_xsrf", default=""),
            **kwargs.pop("headers", {}),
        }
        return self.session.request(
            method, self.base + path, headers=headers, timeout=120, allow_redirects=False, **kwargs
        )

    def start(self, logdir: str) -> dict[str, str]:
        """Start a dashboard."""
        answer = self.ask("POST", "api/tensorboard", json={"logdir": logdir})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def tensorboards(self) -> list[psutil.Process]:
        """The dashboard processes and all they started."""
        return children_of(psutil.Process(self.process.pid))


def start_server(
    folder: Path,
    *flags: str,
    base_url: str = "/user/ada/",
    token: str = TOKEN,
    program: Sequence[str] = (sys.executable,),
    variables: Mapping[str, str] | None = None,
) -> Server:
    """Start a Jupyter server whose root is ``folder/root``, with JupyterLab of this checkout."""
    root = folder / "root"
    root.mkdir()
    runtime = folder / "runtime"
    labextensions = folder / "data/labextensions"
    labextensions.mkdir(parents=True)
    (labextensions / "torch-workbench").symlink_to(CHECKOUT / "workbench/labextension")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")},
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_PREFER_ENV_PATH": "0",
        "PYTHONPATH": str(CHECKOUT),
        "TMPDIR": "/tmp",
        **(variables or {}),
    }
    command = [*program, "-m", "jupyter_server", "--no-browser", "--allow-root"]
    command += ["--ServerApp.port=0", f"--ServerApp.base_url={base_url}"]
    if not any(flag.startswith("--ServerApp.root_dir=") for flag in flags):
        command += [f"--ServerApp.root_dir={root}"]
    command += [f"--IdentityProvider.token={token}"]
    command += ["--ServerApp.jpserver_extensions={'workbench': True}", *flags]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def address() -> dict[str, Any] | None:
        assert process.poll() is None, (folder / "server.log").read_text()
        files = list(runtime.glob("jpserver-*.json"))
        text = files[0].read_text() if files else ""
        return json.loads(text) if text.endswith("}") else None

    found = wait_until(address)
    base = f"http://127.0.0.1:{found['port']}{base_url}workbench/"
    wait_until(lambda: _answers(base))
    server = Server(process, root, base)
    server.log_in()
    return server


def stop_server(server: Server) -> None:
    """End it the way Ctrl-C twice does, and wait."""
    if server.process.poll() is None:
        server.process.terminate()
        server.process.wait(120)


def _answers(base: str) -> bool:
    try:
        return requests.get(base + "api/runs", timeout=10).status_code == 403
    except (requests.ConnectionError, requests.Timeout):
        return False
