"""Mode against mode on the same model: what each gains, costs and changes."""

from workbench.compare.api import compare
from workbench.compare.view import ComparisonView

__all__ = ["ComparisonView", "compare"]
