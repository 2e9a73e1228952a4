"""What so many drawn recipes come to, one line each, and the faults among them made small.

``python -m tests.equivalence.ranks.survey 100 700 shrink`` draws those of the seeds 700 to 799, and
looks for the least recipe of each kind of fault. It is for a look at everything at once.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator

import torch

from tests.equivalence.check import ImpossibleError
from tests.equivalence.ranks.check import Outcome, check, ranks
from tests.equivalence.ranks.recipes import SWITCH, RankRecipe, drawn, is_possible
from tests.fork_server import ForkServer

_MOST_TRIES = 60


def fault_of(recipe: RankRecipe, server: ForkServer) -> Outcome | str:
    """What came of it; a sentence where it is wrong, ``""`` where it cannot be judged."""
    try:
        return check(recipe, server)
    except ImpossibleError:
        return ""
    except AssertionError as error:
        return str(error).partition("\n\n")[0]


def kind_of(fault: str) -> str:
    """The sentence without its numbers, by which faults are of one kind."""
    return re.sub(r"-?\d[\d.e+-]*", "#", fault.partition("\n")[0])[:110]


def smaller(recipe: RankRecipe) -> Iterator[RankRecipe]:
    """Recipes with one thing less."""
    for at in range(len(recipe.actions)):
        fewer = recipe.actions[:at] + recipe.actions[at + 1 :]
        if any(name.startswith(SWITCH) for _, name in fewer):
            yield dataclasses.replace(recipe, actions=fewer)
    for field in dataclasses.fields(recipe):
        if field.name != "actions" and getattr(recipe, field.name) != field.default:
            yield dataclasses.replace(recipe, **{field.name: field.default})
    for at, (step, name) in enumerate(recipe.actions):
        if step > 1 and step - 1 not in [other for other, _ in recipe.actions]:
            changed = (*recipe.actions[:at], (step - 1, name), *recipe.actions[at + 1 :])
            yield dataclasses.replace(recipe, actions=changed)


def shrunk(recipe: RankRecipe, fault: str, server: ForkServer) -> tuple[RankRecipe, str]:
    """The same kind of fault in a recipe with less in it."""
    tries, going = 0, True
    while going and tries < _MOST_TRIES:
        going = False
        for other in smaller(recipe):
            if not is_possible(other):
                continue
            tries += 1
            found = fault_of(other, server)
            if isinstance(found, str) and kind_of(found)[:24] == kind_of(fault)[:24]:
                recipe, fault, going = other, found, True
                break
    return recipe, fault


def main(number: int, first: int, *, shrinks: bool) -> int:
    """Print what comes of them; the exit status is 0 where nothing is wrong."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    faults: dict[str, list[tuple[RankRecipe, str]]] = {}
    begun, stays, steps = time.monotonic(), 0, 0
    with ranks() as server:
        for recipe in map(drawn, range(first, first + number)):
            found = fault_of(recipe, server)
            if isinstance(found, Outcome):
                stays, steps = stays + found.seen.stays, steps + found.seen.steps_away
                counts[found.kind] += 1
                print(recipe.seed, "ok", found.kind, *found.seen.refusals, flush=True)
            elif not found:
                counts["a plain loop cannot"] += 1
            else:
                counts["wrong"] += 1
                print(f"WRONG {found}\n      {recipe}", flush=True)
                faults.setdefault(kind_of(found), []).append((recipe, found))
        print(f"\n{time.monotonic() - begun:.0f} s, {stays} stays, {steps} steps on ranks")
        for name, count in counts.most_common():
            print(f"  {count:4} {name}")
        for kind, those in faults.items() if shrinks else ():
            recipe, fault = shrunk(*those[0], server)
            print(f"\n{len(those)} x {kind}\n{fault}\n{recipe.script()}", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    _given = [int(one) for one in sys.argv[1:] if one.isdigit()]
    sys.exit(main(_given[0], *(_given[1:] or [0]), shrinks="shrink" in sys.argv))
