"""Ranks and scripts that start at once: real processes, forked from one that has imported torch.

Starting two ranks takes some seconds, of which nearly all is the import of torch; a test of 500
recipes starts more than a thousand pairs. So one process imports what a rank imports, computes
nothing (it has a single thread, which is looked at before every fork), and forks for every job a
launcher, which forks the ranks. A rank then runs ``workbench.parallel.rank.program`` as
``__main__``, the whole of it: it meets the others in the folder that `Workers` made, speaks real
gloo with them, unpacks, trains, writes checkpoints and faults, and ends. Nothing is left of it for
the next job.

What differs from a real start: Python's start and the imports are shared, so what an environment
variable changes *at import* is as it was when the server began (the number of OpenMP threads is
looked at); ``torch.distributed.run`` is replaced by a launcher of thirty lines, which ends the
other ranks when one fails, as it does, and prints no table of them; a rank ends without Python's
own finalization. Rows of `tests.equivalence.ranks.test_ranks` go the real way too.

A script is run as ``__main__``, too, and ends as a script does: with Python's own finalization, in
its main thread. It imports Workbench anew, whose runs end with the process that imported it. It is
a child of the server, which says its exit status. What the server had imported is not searched for
garbage then (`gc.freeze`), which would take longer than most scripts; what the script made is.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from tests.waiting import DEADLINE_S
from workbench.processes import interrupts_deferred, start_group

PLANT = "WORKBENCH_TEST_PLANT"
"""The environment's name for a fault that ranks are given: ``module:function``."""
_ROOT = Path(__file__).parents[1]
_LONGEST_S = 240
"""Of a job: ranks that wait for each other for good are ended, which the experiment reports."""
_GRACE_S = 5
_AT_IMPORT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_IMPORTED = (
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "psutil",
    "tensorboard.backend.event_processing.event_accumulator",
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.utils.parametrizations",
    "torch.utils.checkpoint",
    "torch.utils.tensorboard",
    "workbench.compare.variant_program",
    "workbench.parallel.rank.program",
)


# -- the server -----------------------------------------------------------------------------


def serve() -> Callable[[], None] | None:
    """Answer requests, one a line: start a launcher or a script, or say what has become of one.

    In the process of a script it gives what is left to do there, once the server is unwound.
    """
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "status" in request:
            answer = _status_of(request["status"])
        elif problem := _unlike(request):
            answer = {"error": problem}
        elif pid := os.fork():
            answer = {"pid": pid}
        elif "script" in request:
            return lambda: _script(request)
        else:
            _in_child(lambda request=request: _launch(request))
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # taking torch down takes longer than a recipe


def _unlike(request: dict[str, Any]) -> str:
    """Why a fork would not be what a process of its own is, if it would not."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        return f"the fork server has {threads} threads: a child would lack them"
    different = [name for name in _AT_IMPORT if os.environ.get(name) != request["env"].get(name)]
    if different:
        return f"the fork server has imported with another {', '.join(different)}"
    return ""


def _script(request: dict[str, Any]) -> None:
    """Be ``python script.py ...``; what follows is the interpreter's own end."""
    _become(request["env"], os.devnull, request["stdout"], request["stderr"])
    path, main = request["script"], sys.modules["__main__"].__dict__
    sys.argv = [path, *request["arguments"]]
    sys.path[0] = str(Path(path).parent)
    code = compile(Path(path).read_text(), path, "exec")
    names = {"__name__": "__main__", "__file__": path, "__builtins__": builtins, "__spec__": None}
    for name in [one for one in sys.modules if one.partition(".")[0] == "workbench"]:
        del sys.modules[name]
    main.clear()  # all that is global here
    main.update(names)
    exec(code, main)


def _become(env: dict[str, str], *files: str) -> None:
    """Take over an environment, a process group, and what to read from and write to."""
    os.setsid()
    for number, name in enumerate(files):
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT if number else os.O_RDONLY
        opened = os.open(name, how, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(env)


def _status_of(pid: int) -> dict[str, Any]:
    found, status = os.waitpid(pid, os.WNOHANG)
    return {"status": os.waitstatus_to_exitcode(status) if found else None}


def _in_child(work: Any) -> None:
    """Do ``work`` in a process that was forked, and end it: nothing returns to the server."""
    status = 1
    try:
        status = int(work() or 0)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _launch(request: dict[str, Any]) -> int:
    """Fork the ranks and wait for them; where one fails, the others are ended.

    A process that is no rank is this one.
    """
    _become(request["env"], os.devnull, request["log"], request["log"])
    if not request["ranks"]:
        _module(request)
        return 0
    ranks: dict[int, int] = {}
    asked_to_end = False

    def ask_all_to_end(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        _signal_all(ranks, signal.SIGTERM)

    signal.signal(signal.SIGTERM, ask_all_to_end)
    for rank in range(request["ranks"]):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _in_child(lambda rank=rank: _rank(rank, request))
        ranks[pid] = rank
    if asked_to_end:  # while they were being forked
        _signal_all(ranks, signal.SIGTERM)
    signal.signal(signal.SIGALRM, lambda *_arguments: _signal_all(ranks, signal.SIGKILL))
    signal.alarm(_LONGEST_S)
    failed = False
    while ranks:
        pid, status = os.waitpid(-1, 0)
        del ranks[pid]
        if status and not failed:
            failed = True
            signal.alarm(_GRACE_S)
            _signal_all(ranks, signal.SIGTERM)
    return int(failed or asked_to_end)


def _signal_all(ranks: dict[int, int], number: int) -> None:
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _rank(rank: int, request: dict[str, Any]) -> None:
    world = str(request["ranks"])
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world
    )
    _module(request)


def _module(request: dict[str, Any]) -> None:
    """Be ``python -m module arguments...``."""
    sys.argv = [request["module"], *request["arguments"]]
    if plant := os.environ.get(PLANT):
        module, _, function = plant.partition(":")
        getattr(import_module(module), function)()
    # what was imported is forgotten, so that it runs as the program that it is
    sys.modules.pop(request["module"], None)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


# -- its client -----------------------------------------------------------------------------


class ForkServer:
    """The server, whose `start_group` stands for that of `workbench.processes`.

    Give that to `workbench.parallel.launch.worker_processes` where workers are started.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._env = environment
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=_ROOT,
        )
        self._turn = threading.Lock()
        self.started = 0
        """Launchers so far, of whichever kind."""
        self._read()

    def start_group(self, command: list[str], **options: Any) -> Any:
        """A launcher of ranks or a variant of a comparison, from the server; others as before."""
        self.started += 1
        has_ranks = "workbench.parallel.launch.launcher_program" in command
        if not has_ranks and command[1:3] != ["-m", "workbench.compare.variant_program"]:
            return start_group(command, **options)
        at = len(command) - 1 - command[::-1].index("-m")
        ranks = int(command[command.index("--nproc-per-node") + 1]) if has_ranks else 0
        answer = self.ask(
            {
                "start": True,
                "module": command[at + 1],
                "arguments": command[at + 2 :],
                "ranks": ranks,
                "env": dict(options["environment"]),
                "log": os.path.realpath(options["stdout"].name),
            }
        )
        return SimpleNamespace(popen=Forked(self, answer["pid"], command))

    def script(
        self, path: Path, *arguments: str, env: dict[str, str], stdout: Path, stderr: Path
    ) -> Forked:
        """``python path arguments...``, begun; ``stdout`` and ``stderr`` are appended to."""
        env = {name: value for name, value in env.items() if name not in _AT_IMPORT}
        env |= {name: self._env[name] for name in _AT_IMPORT if name in self._env}
        request = {
            "script": str(path), "arguments": arguments, "env": env,
            "stdout": str(stdout), "stderr": str(stderr),
        }  # fmt: skip
        return Forked(self, self.ask(request)["pid"], [sys.executable, str(path), *arguments])

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        with self._turn:
            assert self._process.stdin is not None
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the fork server is gone"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """End it; launchers that still run end with their ranks."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(DEADLINE_S)


class Forked:
    """A launcher that the server has forked, with what `subprocess.Popen` has."""

    def __init__(self, server: ForkServer, pid: int, arguments: list[str]) -> None:
        self._server, self.pid, self.args = server, pid, arguments
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with interrupts_deferred():  # the server says a status once
            if self.returncode is None:
                self.returncode = self._server.ask({"status": self.pid})["status"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        begun = time.monotonic()
        while self.poll() is None:
            if timeout is not None and time.monotonic() - begun > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._send(number)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


if __name__ == "__main__":
    if (in_script := serve()) is not None:
        in_script()
