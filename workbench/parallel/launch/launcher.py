"""The program that looks after ranks: torch's own, whose number the ranks are told.

``python -m workbench.parallel.launch.launcher`` takes the arguments of ``torch.distributed.run``.

Ranks outlive a kernel that is killed, for the next one to take them up. On JupyterHub they end with
its server: one that is stopped, by its owner or because it was idle for long, gives back what it
had. A spawner that starts servers as plain processes ends the server alone, so the launcher looks
whether it is there.
"""

from __future__ import annotations

import os
import signal
import threading

import psutil
from torch.distributed import run

from workbench.processes import PARENT

_ON_A_HUB = "JUPYTERHUB_SERVICE_PREFIX"
"""Which JupyterHub gives to servers, and they to their kernels."""
_SERVER = "JPY_PARENT_PID"
"""The environment's name for the number of the server that started a kernel."""


def server_on_a_hub() -> psutil.Process | None:
    """The server whose kernel began this; None where it is not JupyterHub's, or not here."""
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
