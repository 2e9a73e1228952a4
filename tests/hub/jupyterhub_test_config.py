"""The JupyterHub of the tests: this checkout's build, two people, a folder of its own.

Servers of people are real, and run as whoever runs the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821 - traitlets provides it

checkout = Path(__file__).resolve().parents[2]
folder = Path.cwd()
proxy_port, proxy_api_port, hub_port = os.environ["WORKBENCH_HUB_PORTS"].split()

c.JupyterHub.bind_url = f"http://127.0.0.1:{proxy_port}/hubbase/"
c.JupyterHub.hub_port = int(hub_port)
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy_api_port}"
c.ConfigurableHTTPProxy.command = json.loads(os.environ["WORKBENCH_HUB_PROXY"])
c.ConfigurableHTTPProxy.command += ["--log-level", "error"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {"jo@x.org", "ada lab+1"}
c.JupyterHub.services = [{"name": "tests", "api_token": os.environ["WORKBENCH_HUB_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "scopes": ["admin:servers", "read:users", "tokens"], "services": ["tests"]}
]

# as after `pip install`, but of this checkout: the front end, and the server extension enabled
labextensions = folder / "share/labextensions"
labextensions.mkdir(parents=True)
(labextensions / "torch-workbench").symlink_to(checkout / "workbench/labextension")
enabled = folder / "etc/jupyter_server_config.d"
enabled.mkdir(parents=True)
(enabled / "torch-workbench.json").symlink_to(
    checkout / "workbench/server/config/torch-workbench.json"
)

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{folder}/homes/{{username}}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = [
    "--allow-root",
    # nothing is asked of other hosts
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {
    "PYTHONPATH": str(checkout),
    "JUPYTER_PATH": str(folder / "share"),
    "JUPYTER_CONFIG_PATH": str(folder / "etc"),
    "OMP_NUM_THREADS": "1",
    "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(Path.home() / ".cache/matplotlib")),
    "TORCHINDUCTOR_CACHE_DIR": str(checkout / ".cache/inductor"),
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
# no limit is one machine's: each only ends what hangs
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.LocalProcessSpawner.interrupt_timeout = 120
