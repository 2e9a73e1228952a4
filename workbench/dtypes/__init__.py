"""Which operation computed in which element type, seen by the dispatcher while it ran."""

from __future__ import annotations

from workbench.dtypes.api import DtypeRecording, dtypes
from workbench.dtypes.probe import DtypeProbe
from workbench.dtypes.view import DtypeView

__all__ = ["DtypeProbe", "DtypeRecording", "DtypeView", "dtypes"]
