"""What a cut did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.records.source import source_line

if TYPE_CHECKING:
    from workbench.graph.cuts import Cut
    from workbench.graph.lines import Place


def told(cut: Cut, *, taken: bool, leads: bool) -> str:
    """What ``cut`` did, in one sentence.

    Args:
        cut: the cut.
        taken: whether it took the parameter itself, not something computed from it.
        leads: whether its value is seen to go on as a tensor towards the loss.
    """
    what = "it" if taken else "what was computed from it"
    op = ".data" if cut.op == "data" else cut.op
    who = f"`{op}`{at(cut.module, cut.place)}"
    if cut.escapes_as and not leads:
        verb = "turned" if cut.op in {"item", "tolist", "float", "int"} else "cut"
        after = "which carries no gradient"
        if verb == "turned":
            return f"{who} turned {what} into {cut.escapes_as}, {after}."
        return f"{who} cut {what} from the graph; it went on as {cut.escapes_as}, {after}."
    if cut.reason == "no_grad":
        return f"{who} used {what} under {cut.how}."
    if cut.how == "custom Function":
        return f"The custom Function {who} gave a result without gradient for {what}."
    if cut.how == "through .data":
        return f"{who} wrote {what} through `.data`, which autograd does not see."
    if cut.reason == "detached":
        return f"{who} cut {what} from the graph."
    if cut.op == "compiled region":
        return f"The {cut.op}{at(cut.module, cut.place)} gave a result that carries no gradient."
    if cut.op == "grad":
        return (
            f"{who} gave gradients that are constants; pass create_graph=True to go through them."
        )
    if cut.how:
        return f"{who} cast {what} to {cut.how}, which carries no gradient."
    return f"{who} has no gradient and cut {what} from the graph."


def at(module: str | None, place: Place | None) -> str:
    """Where a cut is: `` in `head` (model.py:12)``, ``""`` where unknown."""
    where = f" in `{module}`" if module else ""
    return where if place is None else f"{where} ({source_line(*place).label})"
