"""The compile report: what Dynamo and Inductor did, from their own records."""

from workbench.dynamo.ahead import CompileAhead, compile_ahead
from workbench.dynamo.tool import CompileRecording, compile_report
from workbench.dynamo.view import CompileView
from workbench.dynamo.watching import watch

__all__ = [
    "CompileAhead",
    "CompileRecording",
    "CompileView",
    "compile_ahead",
    "compile_report",
    "watch",
]
