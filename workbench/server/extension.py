"""The Jupyter server extension: its settings, and what starts and ends with the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir
from jupyter_server.extension.application import ExtensionApp
from tornado.ioloop import PeriodicCallback
from traitlets import Bool, CFloat, Int, List, Unicode

from workbench.server.dashboards import Dashboards, DashboardSettings
from workbench.server.deleted_runs import DeletedRuns
from workbench.server.handlers import routes
from workbench.server.listing_process import RunLists
from workbench.server.memory_files import MemoryFiles, MemoryFileSettings

_CHECK_IDLE_MS = 5_000


class WorkbenchServer(ExtensionApp):
    """Server extension, configured like any other: ``c.WorkbenchServer.tensorboard_limit = 8``."""

    name = "workbench"
    load_other_extensions = True

    tensorboard_idle_stop_s = CFloat(
        1800.0,
        help="Seconds without a request after which a TensorBoard process ends; its tab starts it "
        "again. 0 keeps it until it is stopped.",
    ).tag(config=True)
    tensorboard_limit = Int(4, min=1, help="Most TensorBoard processes at one time.").tag(
        config=True
    )
    tensorboard_start_timeout_s = CFloat(
        60.0, help="Seconds to wait for TensorBoard to listen before giving up."
    ).tag(config=True)
    tensorboard_data_server = Bool(
        default_value=False,
        help="Read events with TensorBoard's data server: faster with hundreds of runs, but it "
        "listens on a loopback TCP port that other users of this machine can open.",
    ).tag(config=True)
    tensorboard_arguments = List(
        Unicode(),
        help="More TensorBoard flags, e.g. ['--samples_per_plugin=images=100'].",
    ).tag(config=True)
    memory_limit = Int(2, min=1, help="Most memory files that are open at one time.").tag(
        config=True
    )
    memory_idle_stop_s = CFloat(
        120.0,
        help="Seconds without a request after which the process of a memory file ends; the next "
        "question about the file starts another one.",
    ).tag(config=True)
    memory_timeout_s = CFloat(
        120.0,
        help="Seconds to wait for an answer about a memory file, and one more for every MiB of it.",
    ).tag(config=True)

    deleted_runs_keep_s = CFloat(
        3600.0,
        min=0.0,
        help="Seconds for which a run that was deleted in the side panel can be put back; then it "
        "is removed for good. 0 removes it at once.",
    ).tag(config=True)

    def initialize_handlers(self) -> None:
        """Build the domain objects and put the handlers below ``<base_url>workbench/``."""
        server: Any = self.serverapp
        base_url: str = server.web_app.settings["base_url"]
        self.dashboards = Dashboards(
            DashboardSettings(
                base_url=base_url,
                log_folder=Path(jupyter_runtime_dir()) / "workbench",
                idle_stop_s=self.tensorboard_idle_stop_s,
                limit=self.tensorboard_limit,
                start_timeout_s=self.tensorboard_start_timeout_s,
                data_server=self.tensorboard_data_server,
                arguments=tuple(self.tensorboard_arguments),
            )
        )
        self.memory_files = MemoryFiles(
            MemoryFileSettings(
                limit=self.memory_limit,
                idle_stop_s=self.memory_idle_stop_s,
                timeout_s=self.memory_timeout_s,
            )
        )
        self.deleted_runs = DeletedRuns(self.deleted_runs_keep_s)
        root = Path(server.root_dir)
        self.run_lists = RunLists(root)
        self.handlers.extend(
            routes(self.dashboards, root, self.memory_files, self.deleted_runs, self.run_lists)
        )
        self._watch = PeriodicCallback(self._end_idle, _CHECK_IDLE_MS)
        self._watch.start()
        self._removal = PeriodicCallback(self._remove_old_runs, _CHECK_IDLE_MS)
        self._removal.start()

    async def _end_idle(self) -> None:
        await self.dashboards.sleep_idle()
        await self.memory_files.stop_idle()
        await self.run_lists.stop_idle()

    async def _remove_old_runs(self) -> None:
        await asyncio.to_thread(self.deleted_runs.remove_old)

    async def stop_extension(self) -> None:
        """End all TensorBoards and all readers of files before the server ends."""
        self._watch.stop()
        self._removal.stop()
        await self.run_lists.stop()
        await self.memory_files.stop_all()
        await self.dashboards.stop_all()
