"""The control panel: live channels, display, and the place where every tool is put together."""

from workbench.panel.open_record import open_record
from workbench.panel.tensorboard import tensorboard

__all__ = ["open_record", "tensorboard"]
