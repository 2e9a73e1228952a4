"""A real JupyterHub with its proxy, and what is left of a person's server in the process table."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urljoin

import psutil
import requests
from frontend import environment, fitting_node

from tests.processes import children_of, is_alive
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROXY = ROOT / "extensions/node_modules/.bin/configurable-http-proxy"


@dataclass
class Hub:
    """A running ``jupyterhub``."""

    process: subprocess.Popen[bytes]
    folder: Path
    url: str
    """``http://127.0.0.1:<port>/hubbase/``"""
    token: str = field(repr=False)
    """Of somebody who may start and stop servers, and give out tokens."""

    def home(self, name: str) -> Path:
        """A person's folder, which their server shows."""
        return self.folder / "homes" / name

    def log(self) -> str:
        """What the hub and the servers have printed."""
        return (self.folder / "hub.log").read_text()

    def ask(self, method: str, path: str, **options: object) -> requests.Response:
        """Ask the hub's own API."""
        return requests.request(
            method,
            f"{self.url}hub/api/{path}",
            headers={"Authorization": f"token {self.token}"},
            timeout=300,
            **options,  # type: ignore[arg-type]
        )

    def start_server(self, name: str) -> str:
        """Start a person's server; returns the address that Workbench has there."""
        user = f"users/{quote(name)}"
        if self.ask("POST", f"{user}/server").status_code == 202:
            self.ask("GET", f"{user}/server/progress")  # events, which end once it runs
        server = self.ask("GET", user).json()["server"]
        assert server, self.log()
        return urljoin(self.url, f"{server}workbench/")

    def token_of(self, name: str) -> str:
        """A token that lets its bearer do what this person may do."""
        return self.ask("POST", f"users/{quote(name)}/tokens").json()["token"]

    def processes_of(self, name: str) -> list[psutil.Process]:
        """All that a person's server has started, whoever has become its parent since."""
        home = str(self.home(name))
        return [one for one in psutil.process_iter() if _home(one) == home and is_alive(one)]


def start_hub(folder: Path) -> Hub:
    """Start a JupyterHub that keeps everything in ``folder``.

    Raises:
        AssertionError: its proxy, a package of npm, is not there, or it does not start.
    """
    env = environment()
    node = fitting_node(env["PATH"])
    assert node is not None, "JupyterHub cannot be tested: its proxy needs Node."
    assert PROXY.exists(), (
        f"JupyterHub cannot be tested: {PROXY} is missing; "
        "run `python scripts/frontend.py --install-only`."
    )
    # not by way of Python, as a package of Node starts it: whoever ends that leaves Node behind
    node = subprocess.check_output([node, "-p", "process.execPath"], env=env, text=True).strip()
    ports, token = _free_ports(3), secrets.token_hex(16)
    env = {key: value for key, value in env.items() if not key.startswith("JUPYTER")}
    env["WORKBENCH_HUB_PORTS"] = " ".join(map(str, ports))
    env["WORKBENCH_HUB_PROXY"] = json.dumps([node, str(PROXY)])
    env["WORKBENCH_HUB_TOKEN"] = token
    config = Path(__file__).with_name("jupyterhub_test_config.py")
    command = [sys.executable, "-m", "jupyterhub", "--config", str(config)]
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    hub = Hub(process, folder, f"http://127.0.0.1:{ports[0]}/hubbase/", token)

    def answers() -> bool:
        assert process.poll() is None, hub.log()
        try:
            return requests.get(hub.url + "hub/api/", timeout=10).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    try:
        wait_until(answers, "the hub")
    except BaseException:
        stop_hub(hub)
        raise
    return hub


def stop_hub(hub: Hub) -> None:
    """End it with all servers and its proxy, as an admin does, and see that nothing is left."""
    if hub.process.poll() is None:
        started = children_of(psutil.Process(hub.process.pid))
        hub.process.terminate()
        hub.process.wait(300)
        wait_until(lambda: not any(map(is_alive, started)), "the end of all that the hub started")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as all_at_once:
        found = [all_at_once.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def _home(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOME", "")
    except (psutil.Error, OSError):  # it has ended, or is somebody else's
        return ""
