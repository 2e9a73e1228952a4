"""The program that supervises ranks: torch's own, whose process id the ranks are given.

``python -m workbench.parallel.launch.launcher_program`` takes the arguments of
``torch.distributed.run``.

Ranks outlive a kernel that is killed, so that the next one can attach to them. On JupyterHub they
end with its server: one that is stopped, by its owner or because it was idle for long, gives back
what it used. A spawner that starts servers as plain processes ends only the server, so the launcher
checks whether it still runs.
"""

from __future__ import annotations

import os
import signal
import threading

import psutil
from torch.distributed import run

from workbench.processes import PARENT

_ON_A_HUB = "JUPYTERHUB_SERVICE_PREFIX"
"""Environment variable that JupyterHub sets for servers, and they for their kernels."""
_SERVER = "JPY_PARENT_PID"
"""Environment variable with the process id of the server that started a kernel."""


def server_on_a_hub() -> psutil.Process | None:
    """Return the server whose kernel began this; None where it is not JupyterHub's, or not here."""
    number = os.environ.get(_SERVER, "")
    if _ON_A_HUB not in os.environ or not number.isdigit():
        return None
    try:
        return psutil.Process(int(number))
    except psutil.NoSuchProcess:
        return None


def _end_with(server: psutil.Process) -> None:
    server.wait()
    os.kill(os.getpid(), signal.SIGTERM)  # it is passed on to the ranks


if __name__ == "__main__":
    os.environ[PARENT] = str(os.getpid())
    if (server := server_on_a_hub()) is not None:
        threading.Thread(target=_end_with, args=(server,), daemon=True).start()
    run.main()
