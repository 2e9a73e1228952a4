"""Child processes: started so that no interrupt loses one, ended with all they started."""

from workbench.processes.environment import python_path
from workbench.processes.forks import computing
from workbench.processes.group import KILL, Group
from workbench.processes.parent import PARENT, is_orphaned, parent
from workbench.processes.start import (
    interrupts_deferred,
    interrupts_kept_from_children,
    run_process,
    start_group,
)

__all__ = [
    "KILL",
    "PARENT",
    "Group",
    "computing",
    "interrupts_deferred",
    "interrupts_kept_from_children",
    "is_orphaned",
    "parent",
    "python_path",
    "run_process",
    "start_group",
]
