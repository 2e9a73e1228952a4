"""The compile report: what Dynamo and Inductor did, from their own records."""

from workbench.dynamo.api import CompileRecording, compile_report
from workbench.dynamo.explain.background_compile import CompileAhead, compile_ahead
from workbench.dynamo.listen.experiment_compilations import watch
from workbench.dynamo.view import CompileView

__all__ = [
    "CompileAhead",
    "CompileRecording",
    "CompileView",
    "compile_ahead",
    "compile_report",
    "watch",
]
