"""The explanation for a frozen parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from workbench.graph.core.model_names import ModelNames


class FrozenText:
    """Explains for a frozen parameter how much around it is frozen as well."""

    def __init__(self, names: ModelNames) -> None:
        self._modules = names.modules
        self._num = np.zeros(len(names.modules), dtype=np.int64)
        self._num_frozen = np.zeros_like(self._num)
        for key, (_, row) in names.parameters.items():
            self._num[row] += 1
            self._num_frozen[row] += key in names.frozen
        for row in range(len(names.modules) - 1, 0, -1):  # parents come first in the table
            parent = names.modules[row].parent
            if parent >= 0:
                self._num[parent] += self._num[row]
                self._num_frozen[parent] += self._num_frozen[row]

    def of(self, row: int) -> str:
        """Sentence for a frozen parameter of the module in ``row``."""
        widest = -1
        while row >= 0 and self._num[row] == self._num_frozen[row]:
            widest, row = row, self._modules[row].parent
        text = "It is frozen: requires_grad is False"
        if widest < 0 or self._num[widest] < 2:
            return f"{text}."
        path = self._modules[widest].path
        where = f"`{path}`" if path else "the model"
        return f"{text}, as for all {self._num[widest]:,} parameters of {where}."
