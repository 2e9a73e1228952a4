"""Dynamo's limit of recompiles: what reached it, how often it was compiled, and why again.

A piece of code is compiled again for every call that no compiled variant fits, up to a limit. A
call that fits none runs as Python from then on, and torch reports this only in a warning on stderr
(``convert_frame.py: _compile``). It is reported as a break too, so it is in every report; here it
becomes the sentence that an experiment notes, and the text that the toggle shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.dynamo.listen.recompiles import explain
from workbench.records import source_line

if TYPE_CHECKING:
    from workbench.dynamo.listen.graph_breaks import Break, Place
    from workbench.dynamo.listen.recorder import Compilation

REASON = "Dynamo recompile limit exceeded"
"""Dynamo's name for it among the reasons of breaks (`GB0039` of its registry)."""
_SETTING = re.compile(r"exceeding the (?P<name>\w+) .*\(currently set to (?P<count>\d+)\)")


@dataclass(frozen=True)
class Limit:
    """A piece of code that is no longer compiled."""

    region: str
    """Name of the region's code object, by which a module that uses it is identified."""
    code: str
    """``forward of layers.0 and layers.1 (Block)``"""
    place: Place | None
    setting: str
    """``recompile_limit`` or ``accumulated_recompile_limit``"""
    count: int
    """Value of the setting: how many variants are kept; 0 if Dynamo did not report it."""
    why: str
    """Why the last call fits no variant, in a sentence; empty if unknown."""
    remedy: str

    @property
    def summary(self) -> str:
        """Text for a badge: ``forward of Net was compiled 8 times: The type of x is another.``."""
        times = f"{self.count} times" if self.count else "as often as it may be"
        return f"{self.code} was compiled {times}" + (f": {self.why}" if self.why else "")

    @property
    def sentence(self) -> str:
        """What the user should know about it, with what to do."""
        at = f" at {source_line(*self.place).label}" if self.place is not None else ""
        times = f"{self.count} times" if self.count else "as often as it may be"
        setting = f"torch._dynamo.config.{self.setting}" if self.setting else "Dynamo's limit"
        parts = [
            f"{self.code}{at} was compiled {times}, the limit ({setting}): calls that fit none of "
            "these run without compile.",
            f"The last: {self.why}" if self.why else "",
            self.remedy,
        ]
        return " ".join(filter(None, parts))


def limits_in(compilations: Iterable[Compilation]) -> list[Limit]:
    """Return the limits that ``compilations`` reached, each piece of code once, in their order."""
    found: dict[tuple[str, str, Place | None], Limit] = {}
    for one in compilations:
        for broken in one.breaks:
            if broken.reason == REASON:
                limit = limit_of(one, broken)
                found.setdefault((limit.region, limit.code, limit.place), limit)
    return list(found.values())


def limit_of(compilation: Compilation, broken: Break) -> Limit:
    """Return the limit that ``broken``, a break for `REASON`, is about."""
    region = compilation.region
    of = f" of {region.label}" if region is not None and region.cls else ""
    setting = _SETTING.search(broken.explanation)
    reasons = compilation.reasons
    parameters = region.parameters if region is not None else ()
    reason = explain(reasons[0], parameters, compilation.receiver) if reasons else None
    return Limit(
        region="" if region is None else region.key[1],
        code=f"{compilation.code_name or 'a function'}{of}",
        place=compilation.code_place,
        setting=setting["name"] if setting else "",
        count=int(setting["count"]) if setting else 0,
        why="" if reason is None else reason.words,
        remedy="" if reason is None else reason.remedy,
    )
