"""An arm as its comparison sees it: a process (or several ranks) that is given orders."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from workbench.experiment.failure.failure import Fault
from workbench.experiment.state.process_settings import threads_of_a_rank
from workbench.modes.layout.mode import Parallel
from workbench.parallel.exchange.files import ARRAY, Folder
from workbench.parallel.exchange.stream import Follower, Message, Writer
from workbench.parallel.launch.launch import Workers

if TYPE_CHECKING:
    from workbench.modes import ModeSet

COMPARED_STEPS = 20
"""Losses of so many steps are compared, counted from the weights at the start."""
JOB = "arm.json"
"""In an arm's folder, what it is to do."""
LOGITS = "logits.pt"
"""In an arm's folder, what it computed of the validation data."""
_POLL_S = 0.005
_PATIENCE_S = 1800.0
"""For an answer: compiling a large model under ``max-autotune`` takes that long."""


class ArmError(RuntimeError):
    """An arm's processes ended, or gave no answer."""


class ArmProcess:
    """Starts at once; `begun` waits until it can be given orders.

    Args:
        shared: folder with the payload and the checkpoint that all arms of a model begin with.
        folder: of this arm alone; made here.
        modes: what it runs under.
        parity_samples: how many samples' logits it is to compute.
        cache: folder for what it compiles; None: this machine's, which may know the model.
    """

    def __init__(
        self,
        shared: Folder,
        folder: Path,
        modes: ModeSet,
        parity_samples: int,
        *,
        cache: Path | None,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True)
        self.folder = Folder(folder, shared.seal)
        _share(shared, self.folder)
        mode = modes["parallel"]
        layout = mode.layout if isinstance(mode, Parallel) else None
        self.ranks = layout.world_size if layout else 1
        job = {
            "modes": str(modes),
            "ranks": self.ranks,
            "parent": os.getpid(),
            "parity_samples": parity_samples,
        }
        self.folder.seal.write_json(folder / JOB, job, JOB)
        self._orders = Writer(folder / "orders.jsonl", shared.seal)
        self._answers = Follower(folder / "answers.jsonl", shared.seal)
        variables = _environment(modes.device, self.ranks)
        if cache is not None:
            variables["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        world = self.ranks if layout else 0
        self._workers = Workers(self.folder, world, "workbench.compare.variant_program", variables)

    def begun(self) -> None:
        """Wait until it is ready.

        Raises:
            ArmError: it ended instead; the message says why.
        """
        self._answer("ready")

    def ask(self, order: str, **arguments: int) -> Message:
        """Give an order and wait for its answer.

        Raises:
            ArmError: it ended instead; the message says why.
        """
        self._orders.write({"do": order, **arguments})
        return self._answer(order)

    @property
    def is_over(self) -> bool:
        """Whether its processes are gone."""
        return self._workers.status() is not None

    def leave(self) -> None:
        """Have it end by itself: nothing more is wanted."""
        self._orders.write({"do": "leave"})

    def end(self) -> None:
        """End it, by force if need be."""
        self._workers.end()
        self._orders.close()

    def _answer(self, kind: str) -> Message:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._orders.flush()
            status = self._workers.status()
            for message in self._answers.new(self._answers.count + 1):
                if message["type"] == kind:
                    return message
            if status is not None:
                raise ArmError(self._cause(status))
            time.sleep(_POLL_S)
        raise ArmError(f"no answer for {_PATIENCE_S / 60:g} minutes; it was ended")

    def _cause(self, status: int) -> str:
        faults = self.folder.faults()
        own = [(found["time"], found) for found in faults.values() if not found["lost"]]
        if own:
            fault = Fault(*min(own, key=lambda pair: pair[0])[1]["fault"])
            return f"{fault.type}: {fault.message}".strip().split("\n")[0]
        lost = [found["fault"] for found in faults.values()]
        if lost:
            fault = Fault(*lost[0])
            return f"its ranks lost each other: {fault.type}: {fault.message}".strip().split("\n")[
                0
            ]
        said = self.folder.last_words()
        return f"ended from outside (status {status}), as when memory runs out. {said}".strip()


def _environment(device: torch.device, ranks: int) -> dict[str, str]:
    """The kernel's CPU threads, shared among ranks; and its GPU, which is an arm's only one."""
    variables = {"OMP_NUM_THREADS": str(threads_of_a_rank(torch.get_num_threads(), ranks))}
    if device.type == "cuda" and device.index and ranks == 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else []
        variables["CUDA_VISIBLE_DEVICES"] = names[device.index] if names else str(device.index)
    return variables


def _share(shared: Folder, own: Folder) -> None:
    """Let an arm find payload, arrays and checkpoint in its own folder, without a copy of data."""
    for path in (shared.payload, *shared.path.glob(f"{ARRAY}*")):
        target = own.path / path.name
        try:
            target.hardlink_to(path)
        except OSError:  # a file system without links
            shutil.copy2(path, target)
    own.start.mkdir()
    for path in shared.start.iterdir():
        try:
            (own.start / path.name).hardlink_to(path)
        except OSError:
            shutil.copy2(path, own.start / path.name)
