"""The compile report: what Dynamo and Inductor did, from their own records."""

from workbench.dynamo.tool import CompileRecording, compile_report
from workbench.dynamo.view import CompileView
from workbench.dynamo.watching import watch

__all__ = ["CompileRecording", "CompileView", "compile_report", "watch"]
