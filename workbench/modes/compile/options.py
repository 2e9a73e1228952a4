"""A value of mode ``compile``: which regions, and what ``torch.compile`` is given for them.

A value is ``off``, ``blocks`` or ``whole``; the last two may be followed by options after commas,
in any order: ``whole,max-autotune-no-cudagraphs,dynamic,fullgraph``.

* One of the modes of ``torch.compile``, as this torch lists them (`torch._inductor`'s
  ``list_mode_options``; its ``default`` applies if none is named).
* ``dynamic``: sizes are symbols from the start. ``static``: every new size is compiled separately.
  With neither, Dynamo begins with sizes as they are, and one that changes becomes a symbol.
* ``fullgraph``: a graph break is an error instead of a fallback to Python.

Source of the meanings: the documentation of ``torch.compile``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.torch_private import compiler

_FORMS = ("off", "blocks", "whole")
_SHAPES = {"dynamic": True, "static": False}
_FULLGRAPH = "fullgraph"
_CUDA_GRAPHS = "triton.cudagraphs"


@dataclass(frozen=True)
class CompileOptions:
    """A parsed value of mode ``compile``; its ``str`` is the canonical form."""

    regions: str
    """``off``, ``blocks`` or ``whole``"""
    mode: str = ""
    """As ``torch.compile(mode=...)``; ``""`` is its default."""
    dynamic: bool | None = None
    """As ``torch.compile(dynamic=...)``."""
    fullgraph: bool = False

    @classmethod
    def parse(cls, value: str) -> CompileOptions:
        """Parse ``value``; case, spaces and the order of options do not matter.

        Raises:
            ValueError: something in it is unknown or contradicts the rest; the message lists what
                is valid.
        """
        regions, *options = (part.strip().lower() for part in value.split(","))
        if regions not in _FORMS:
            raise ValueError(
                f"unknown value {value!r} for compile; valid values are: {', '.join(_FORMS)}, "
                "and after blocks or whole options, as in compile:whole,dynamic,fullgraph"
            )
        if not options:
            return cls(regions)
        _check(value, regions, options)
        return cls(
            regions,
            next((name for name in options if name in torch_modes()), ""),
            next((_SHAPES[name] for name in options if name in _SHAPES), None),
            _FULLGRAPH in options,
        )

    def __str__(self) -> str:
        return ",".join(filter(None, [self.regions, self.without_regions]))

    @property
    def without_regions(self) -> str:
        """The options alone, ``""`` if there are none; regions compiled apart differ in them."""
        shapes = next((name for name, value in _SHAPES.items() if value is self.dynamic), "")
        return ",".join(filter(None, [self.mode, shapes, _FULLGRAPH if self.fullgraph else ""]))

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``torch.compile`` other than the region and the backend."""
        return {
            "mode": self.mode or None,
            "dynamic": self.dynamic,
            "fullgraph": self.fullgraph,
        }

    def without_effect(self, device: torch.device) -> str:
        """Which of the options have no effect on ``device``, as a sentence, or ``""``."""
        if device.type == "cuda" or not self.mode or _CUDA_GRAPHS not in mode_settings(self.mode):
            return ""
        other = self.mode + "-no-cudagraphs"
        alike = f"as {other}" if other in torch_modes() else "as without it"
        return f"CUDA graphs need CUDA: on {device.type} {self.mode} compiles {alike}."


def torch_modes() -> tuple[str, ...]:
    """The modes of ``torch.compile`` that this torch has, without its default."""
    return tuple(name for name in _settings_by_mode() if name != "default")


def mode_settings(mode: str) -> dict[str, Any]:
    """What a mode of ``torch.compile`` sets in Inductor; nothing for ``""``."""
    return dict(_settings_by_mode()[mode]) if mode else {}


def _settings_by_mode() -> dict[str, dict[str, Any]]:
    return compiler.mode_settings()


def _check(value: str, regions: str, options: list[str]) -> None:
    """Refuse options that are unknown, given twice, or exclude each other."""
    modes = torch_modes()
    valid = ", ".join([*modes, *_SHAPES, _FULLGRAPH])
    if regions == "off":
        raise ValueError(f"compile:{value} gives options to what is off; say compile:off alone")
    for name in options:
        if name not in modes and name not in _SHAPES and name != _FULLGRAPH:
            raise ValueError(f"unknown option {name!r} in compile:{value}; valid are: {valid}")
        if options.count(name) > 1:
            raise ValueError(f"compile:{value} says {name} twice; say it once")
    for group in (modes, tuple(_SHAPES)):
        given = [name for name in options if name in group]
        if len(given) > 1:
            raise ValueError(
                f"compile:{value} gives {' and '.join(given)}, which exclude each other; "
                f"at most one of these is valid: {', '.join(group)}"
            )
