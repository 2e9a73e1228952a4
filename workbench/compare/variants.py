"""A variant as its comparison sees it: a process (or several ranks) that receives orders."""

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
from workbench.parallel.launch.worker_processes import Workers

if TYPE_CHECKING:
    from workbench.modes import ModeSet

COMPARED_STEPS = 20
"""Number of steps whose losses are compared, counted from the initial weights."""
JOB = "variant.json"
"""Name of the file in a variant's folder that describes its job."""
LOGITS = "logits.pt"
"""Name of the file in a variant's folder with what it computed for the validation data."""
_POLL_S = 0.005
_PATIENCE_S = 1800.0
"""Longest wait for an answer in seconds: compiling a large model under ``max-autotune`` takes that
long."""


class VariantError(RuntimeError):
    """A variant's processes ended, or did not answer."""


class VariantProcess:
    """Processes of a variant, started immediately; `begun` waits until they can be given orders.

    Args:
        shared: folder with the payload and the checkpoint that all variants of a model begin with.
        folder: folder of this variant alone; created here.
        modes: modes that it runs under.
        parity_samples: number of samples whose logits it has to compute.
        cache: cache folder for what it compiles; None for this machine's cache, which may already
            have the model.
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
            VariantError: it ended instead; the message says why.
        """
        self._answer("ready")

    def request(self, order: str, **arguments: int) -> Message:
        """Send an order and wait for its answer.

        Raises:
            VariantError: it ended instead; the message says why.
        """
        self._orders.write({"do": order, **arguments})
        return self._answer(order)

    @property
    def is_over(self) -> bool:
        """Whether its processes have ended."""
        return self._workers.status() is not None

    def leave(self) -> None:
        """Make it end by itself: nothing more is needed."""
        self._orders.write({"do": "leave"})

    def end(self) -> None:
        """End it, by force if necessary."""
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
                raise VariantError(self._cause(status))
            time.sleep(_POLL_S)
        raise VariantError(f"no answer for {_PATIENCE_S / 60:g} minutes; it was ended")

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
        said = self.folder.last_printed_line()
        return f"ended from outside (status {status}), as when memory runs out. {said}".strip()


def _environment(device: torch.device, ranks: int) -> dict[str, str]:
    """Return variables: the kernel's CPU threads, shared among ranks, and the variant's GPU."""
    variables = {"OMP_NUM_THREADS": str(threads_of_a_rank(torch.get_num_threads(), ranks))}
    if device.type == "cuda" and device.index and ranks == 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else []
        variables["CUDA_VISIBLE_DEVICES"] = names[device.index] if names else str(device.index)
    return variables


def _share(shared: Folder, own: Folder) -> None:
    """Provide payload, arrays and checkpoint in a variant's own folder, without copying data."""
    for path in (shared.payload, *shared.path.glob(f"{ARRAY}*")):
        target = own.path / path.name
        try:
            target.hardlink_to(path)
        except OSError:  # a file system without hard links
            shutil.copy2(path, target)
    own.start.mkdir()
    for path in shared.start.iterdir():
        try:
            (own.start / path.name).hardlink_to(path)
        except OSError:
            shutil.copy2(path, own.start / path.name)
