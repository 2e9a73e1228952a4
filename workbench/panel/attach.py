"""``wb.attach``: importing this module gives an attached experiment what every new one gets."""

from workbench.panel import assembly
from workbench.parallel.attach import attach

__all__ = ["assembly", "attach"]
