"""Recipes that go to ranks and come home: those of `tests.equivalence`, with mode switches."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.equivalence import recipes as plainly
from tests.equivalence.losses import LOSSES
from tests.equivalence.models import CLASSES, LENGTH, VOCABULARY, WIDTH
from tests.equivalence.optimizers import NOT_COMPLEX, OVER, SPARSE
from tests.equivalence.ranks.attached import ATTACHED
from tests.equivalence.ranks.models import MODELS
from tests.equivalence.ranks.optimizers import ALL_DENSE, ALL_SCHEDULES, OWN
from tests.equivalence.recipes import Recipe
from tests.equivalence.sources import SOURCES, VALIDATIONS

SWITCH = "modes "
"""What an action begins with that switches modes; they follow: ``modes bf16+fsdp:2``."""
LAYOUTS = ("ddp:2", "fsdp:2")
MORE_LAYOUTS = ("fsdp:2,keep", "fsdp:2,hsdp=2")
BESIDE = ("attention:math", "checkpoint", "bf16", "fp16", "compile")
"""Modes that are switched on and off beside a layout."""
# checkpoints of a run are those of its kernel: what ranks have not brought back is not in them
ACTIONS = tuple(name for name in plainly.ACTIONS if name != plainly.RESUME)
SHARED = (
    "arrays",
    "arrays in turn",
    "dataset",
    "list of samples",
    "mappings",
    "loader",
    "loader, whole batches",
)
"""Sources whose batches ranks can divide; the others are refused."""


@dataclass(frozen=True)
class RankRecipe(Recipe):
    """A recipe, what is attached to it, and whether it is computed in float64.

    Its actions have switches of modes among them. In float64 sums that are added in another order
    differ by 1e-16 instead of 1e-7, so a wrong number is told from a rounded one far more sharply.
    """

    attached: str = ""
    double: bool = False
    hot: bool = False
    """Whether modes and the rate are changed while it trains, and not between two runs."""

    def script(self) -> str:
        """A program that repeats it."""
        changed = ", ".join(
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        )
        return (
            "from tests.equivalence.ranks.check import check_alone\n"
            "from tests.equivalence.ranks.recipes import RankRecipe\n\n"
            f"check_alone(RankRecipe({changed}))\n"
        )

    @property
    def ranks(self) -> int:
        """How many there are whenever there are any."""
        layouts = (layout_of(modes) for _, modes in self.switches)
        found = next(filter(None, layouts), "ddp:2")
        return int(found.partition(":")[2].partition(",")[0])

    @property
    def switches(self) -> list[tuple[int, str]]:
        """After so many steps, which modes."""
        return [
            (after, name.removeprefix(SWITCH))
            for after, name in self.actions
            if name.startswith(SWITCH)
        ]


def layout_of(modes: str) -> str:
    """``fsdp:2`` of ``bf16+fsdp:2``; ``""`` where a single process trains."""
    return next((token for token in modes.split("+") if token[:4] in ("ddp:", "fsdp")), "")


def at_home(modes: str) -> str:
    """The same modes in a single process."""
    return "+".join(token for token in modes.split("+") if token and token != layout_of(modes))


def toggled_attention(modes: str) -> str:
    """The same with ``attention:math`` on or off."""
    tokens = [token for token in modes.split("+") if token]
    with_it = "attention:math" in tokens
    kept = [token for token in tokens if token != "attention:math"]
    return "+".join(kept if with_it else ["attention:math", *kept])


def precision_of(modes: str) -> str:
    """``bf16`` of ``bf16+fsdp:2``; ``""`` where it is float32."""
    return next((token for token in modes.split("+") if token in ("bf16", "fp16")), "")


def arrays(recipe: RankRecipe, *, validation: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of ``recipe``."""
    generator = torch.Generator().manual_seed(recipe.seed + 100 + validation)
    count = recipe.samples - 3 if validation else recipe.samples
    classes = torch.randint(0, CLASSES, (count,), generator=generator)
    kind = MODELS[recipe.model].inputs
    if kind == "tokens":
        x = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
        x[:, 0] = classes
    else:
        x = torch.randn(count, WIDTH, generator=generator) + classes[:, None]
        if kind == "signal":
            x = x[:, None]
        if recipe.poisoned and not validation:
            x[recipe.samples // 2] = torch.nan
    labels = LOSSES[recipe.loss].labels(classes)
    if is_double(recipe):
        x, labels = (one.double() if one.is_floating_point() else one for one in (x, labels))
    return x, labels


def is_double(recipe: RankRecipe) -> bool:
    return recipe.double or recipe.model == "float64"


def make_model(recipe: RankRecipe) -> nn.Module:
    """The model of ``recipe``, with the weights that its seed gives."""
    torch.manual_seed(recipe.seed)
    model = MODELS[recipe.model].make()
    if is_double(recipe):
        model.double()
    end = LOSSES[recipe.loss].end
    return model if end is None else nn.Sequential(model, end())


def make_loss(recipe: RankRecipe) -> Any:
    """The loss of ``recipe``."""
    loss = LOSSES[recipe.loss].make()
    if is_double(recipe) and isinstance(loss, nn.Module):
        loss.double()
    return loss


def is_possible(recipe: RankRecipe) -> bool:
    """Whether a plain loop can be written for it at all, and is comparable."""
    asked = (_goes_with_model, _goes_with_optimizer, _goes_with_switches, _goes_with_attached)
    return all(ask(recipe) for ask in asked) and plainly.is_possible(_as_plain(recipe))


def _as_plain(recipe: RankRecipe) -> Recipe:
    """The nearest recipe of a single process, for what that has to say."""
    fields = {field.name for field in dataclasses.fields(Recipe)}
    given = {name: value for name, value in vars(recipe).items() if name in fields}
    given["actions"] = tuple(one for one in recipe.actions if not one[1].startswith(SWITCH))
    if recipe.model not in plainly.MODELS:
        given["model"] = "embedding" if MODELS[recipe.model].inputs == "tokens" else "perceptron"
    if recipe.optimizer in OWN:
        given["optimizer"] = "adamw"
    if recipe.schedule == "of one's own":
        given["schedule"] = "exponential"
    return Recipe(**given)


def _goes_with_model(recipe: RankRecipe) -> bool:
    model, loss = MODELS[recipe.model], LOSSES[recipe.loss]
    if recipe.precision:
        return False  # switched by actions
    for _, modes in recipe.switches:
        precision = precision_of(modes)
        if precision not in model.precisions or precision not in loss.precisions:
            return False
        if precision and recipe.double:
            return False
        if precision == "fp16" and (recipe.poisoned or model.is_sparse):
            return False
    if recipe.double and (model.is_complex or recipe.model in ("float64", "two float types")):
        return False
    if recipe.source == "mappings" and not isinstance(make_model(recipe), nn.Sequential):
        return False  # called by keyword, with the name that `nn.Sequential` has
    # a last batch of one: batch norm refuses it
    last = recipe.samples % recipe.size
    return not ("norm" in recipe.model and model.seen == "part" and last == 1)


def _goes_with_optimizer(recipe: RankRecipe) -> bool:
    model = MODELS[recipe.model]
    if recipe.optimizer not in (SPARSE if model.is_sparse else ALL_DENSE):
        return False
    if recipe.schedule == "of one's own" and "tensor" in recipe.optimizer:
        return False
    if recipe.optimizer == "muon" and (recipe.loss == "with parameters" or recipe.over == "head"):
        return False
    return not (model.is_complex and recipe.optimizer in (*NOT_COMPLEX, "muon"))


def _goes_with_switches(recipe: RankRecipe) -> bool:
    steps, names = [after for after, _ in recipe.actions], [name for _, name in recipe.actions]
    if len(set(steps)) < len(steps):
        return False
    apart = [later - earlier for earlier, later in itertools.pairwise(steps)]
    if recipe.hot and (recipe.poisoned or recipe.source not in SHARED):
        return False  # what is refused there is refused at a step that nobody can name
    if recipe.hot and (min(apart, default=2) < 2 or "single steps" in names):
        return False  # ranks have to say that they are there before the next thing is done
    in_epoch = math.floor if recipe.source == "loader, whole batches" else math.ceil
    planned = recipe.epochs * (in_epoch(recipe.samples / recipe.size) - recipe.poisoned)
    if not any(layout_of(modes) and after < planned for after, modes in recipe.switches):
        return False  # it ends before it is away
    compiles = _compiles(recipe)
    model = MODELS[recipe.model]
    plain = model.seen == "rows" and not model.keeps and not model.is_complex
    return not compiles or (plain and not model.is_sparse and not recipe.attached)


def _goes_with_attached(recipe: RankRecipe) -> bool:
    model = MODELS[recipe.model]
    swaps = any(name == "swap" for _, name in recipe.actions)
    # what a swap gives to a new model is its parameters and buffers, not what else it has
    keeps = model.keeps or recipe.optimizer in ("marks on parameters", "a list of its own")
    if swaps and (keeps or recipe.attached):
        return False
    if recipe.attached and (model.is_complex or model.is_sparse):
        return False
    if recipe.attached.startswith("forward") or recipe.attached == "backward hook":
        # what a hook counts is counted for a cell's own calls and for captures as well
        others = ("eval and a look", "own backward", "attention")
        return not any(name in others for _, name in recipe.actions)
    if recipe.attached == "average in an optimizer's hook":
        return "norm" not in recipe.model and recipe.model != "orthogonal"
    return True


PLAIN = RankRecipe(
    samples=21,
    size=8,
    validates=True,
    actions=((1, SWITCH + "ddp:2"), (3, SWITCH + "fsdp:2"), (5, SWITCH)),
)
"""Away, elsewhere, home: six steps, whose epochs end with a smaller batch."""


def drawn(seed: int, *, compiles: bool = False) -> RankRecipe:
    """Any recipe that a plain loop can be written for, with at least one switch to ranks.

    Each part is drawn independently of what was drawn before. (Hypothesis would vary its last
    examples, of which many then share a part; a stay on ranks is too dear for that.)
    """
    draw = random.Random(seed)
    while not is_possible(recipe := _drawn(draw)) or (not compiles and _compiles(recipe)):
        pass
    return recipe


def _compiles(recipe: RankRecipe) -> bool:
    """Half a minute of a machine's time, for each layout."""
    return any("compile" in modes for _, modes in recipe.switches)


def _drawn(draw: random.Random) -> RankRecipe:
    model = draw.choice(sorted(MODELS))
    optimizers = sorted(SPARSE if MODELS[model].is_sparse else ALL_DENSE)
    steps = sorted(draw.sample(range(9), draw.randint(1, 4)))
    to_ranks = draw.randrange(len(steps))
    actions: list[tuple[int, str]] = []
    for at, step in enumerate(steps):
        if at == to_ranks or draw.random() < 0.5:
            actions.append((step, SWITCH + _modes(draw, away=at == to_ranks)))
        else:
            actions.append((step, draw.choice(ACTIONS)))
    return RankRecipe(
        model=model,
        loss=draw.choice(["none given", "cross entropy", *sorted(LOSSES)]),
        optimizer=draw.choice(optimizers),
        over=draw.choice(OVER),
        schedule=draw.choice(["", *sorted(ALL_SCHEDULES)]) if draw.random() < 0.7 else "",
        source=draw.choice(SHARED if draw.random() < 0.92 else sorted(SOURCES)),
        clip=draw.choice([None, 0.1, 1.0]),
        validates=draw.random() < 0.5,
        validation="arrays" if draw.random() < 0.9 else draw.choice(sorted(VALIDATIONS)),
        samples=draw.randint(10, 26),
        size=draw.choice([4, 5, 8]),
        epochs=draw.randint(1, 3),
        seed=draw.randrange(1000),
        poisoned=draw.random() < 0.15,
        attached=draw.choice(sorted(ATTACHED)) if draw.random() < 0.3 else "",
        double=draw.random() < 0.5,
        hot=draw.random() < 0.4,
        actions=tuple(actions),
    )


def _modes(draw: random.Random, *, away: bool) -> str:
    """Modes to switch to: a layout, and sometimes what else there is to toggle."""
    layout = draw.choice(LAYOUTS if away else ("", "", *LAYOUTS))
    if layout.startswith("fsdp") and draw.random() < 0.2:
        layout = draw.choice(MORE_LAYOUTS)
    beside = draw.choice(BESIDE) if draw.random() < 0.25 else ""
    if beside == "compile" and draw.random() < 0.8:
        beside = ""
    return "+".join(filter(None, [beside, layout]))
