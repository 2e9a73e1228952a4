"""Child processes: none is lost, whatever interrupts the one that starts it."""

from workbench.processes.start import interrupts_deferred, run_process

__all__ = ["interrupts_deferred", "run_process"]
