"""``wb.attach``: importing this has an experiment that is taken up get what every new one gets."""

from workbench.panel import assembly
from workbench.parallel.attach import attach

__all__ = ["assembly", "attach"]
