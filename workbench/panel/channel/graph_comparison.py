"""``compare``: the diff of two graphs that an experiment holds, kept as an additional capture.

Matching two large graphs takes seconds; it is done in the background
(`workbench.panel.channel.background_work`), one pair at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from workbench.panel.channel.background_work import Task
from workbench.panel.channel.commands import CommandError, text_of

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import GraphRecord

_turn = threading.Lock()


def compare(experiment: Experiment, args: Mapping[str, Any]) -> Task:
    """Read the arguments of a ``compare`` command: ids ``a`` and ``b`` of two graphs.

    Raises:
        CommandError: an id is not a text or its graph is no longer held, or both ids are the same.
    """
    captures = experiment.captures
    graphs = {info.id: info for info in captures.infos() if info.kind == "graph"}
    a, b = (text_of(args, key) for key in ("a", "b"))
    for wanted in (a, b):
        if wanted not in graphs:
            known = ", ".join(graphs) or "none"
            raise CommandError(f"no graph {wanted[:64]!r} is held any more; held are: {known}")
    if a == b:
        raise CommandError(f"graph {a!r} was to be compared with itself; a and b must differ")
    older, newer = (cast("GraphRecord", captures.get(one)) for one in (a, b))
    steps = graphs[a].step, graphs[b].step

    def make() -> None:
        from workbench.graph.diff.diff import diff_records

        diff = diff_records(older, newer)
        captures.add("diff", steps[1], diff, diff.sentence, against_step=steps[0])

    return Task(make, _turn)
