"""Hooks and attributes of parameters, of optimizers and of torch itself, which pickling drops.

Torch pickles a parameter without its hooks, and an optimizer as its settings and moments: hooks
that the user has registered on either are silently missing in another process. A parameter that
stays behind (its values come with a checkpoint) has attributes too, for example
``p.decay = False``. So everything that passes through the pickler is inspected, and what is
attached to it is sent after it, including the hook dictionaries themselves: the handle of a
registered hook removes it in the other process as it does in this one.

Hooks of all modules (``register_module_forward_hook``) and of all optimizers
(``register_optimizer_step_post_hook``) are torch's own variables, and are sent with a run too.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules import module as _modules
from torch.utils.hooks import RemovableHandle

from workbench.experiment.state.object_copy import attributes

_optimizers = sys.modules["torch.optim.optimizer"]
TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
OPTIMIZER_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
_OF_ALL = (
    *((_modules, f"_global_{what}_hooks") for what in (
        "forward", "forward_pre", "backward", "backward_pre", "module_registration",
        "parameter_registration", "buffer_registration",
    )),
    *((_modules, f"_global_forward_hooks_{what}") for what in ("always_called", "with_kwargs")),
    *((_optimizers, f"_global_optimizer_{when}_hooks") for when in ("pre", "post")),
)  # fmt: skip
_IS_FULL = "_global_is_full_backward_hook"
"""Torch's flag for whether backward hooks of all modules are of the newer kind."""
_Hooks = OrderedDict[int, Any]


def attached_to(obj: Any, *, with_attributes: bool) -> dict[str, Any]:
    """Return what is attached to a tensor or an optimizer, by name of the attribute; may be empty.

    Args:
        obj: any object.
        with_attributes: whether to include the attributes that the user has set on a tensor.
    """
    if isinstance(obj, torch.Tensor):
        found = dict(vars(obj)) if with_attributes else {}
        return found | _hooks_of(obj, TENSOR_HOOKS)
    if isinstance(obj, torch.optim.Optimizer):
        return _hooks_of(obj, OPTIMIZER_HOOKS)
    return {}


def own_attributes(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the attributes of an optimizer other than its groups, its state and its hooks.

    Torch leaves them out of what it pickles. A ``step`` that a scheduler has installed, to detect
    that it is called, is left out here: the scheduler installs it again.
    """
    return {
        name: value
        for name, value in attributes(optimizer).items()
        if name not in ("state", "param_groups", *OPTIMIZER_HOOKS)
        and not hasattr(value, "_wrapped_by_lr_sched")
    }


def attach(obj: Any, found: dict[str, Any]) -> None:
    """Attach to ``obj`` what `attached_to` found on its original."""
    for name, value in found.items():
        setattr(obj, name, value)
        if name in (*TENSOR_HOOKS, *OPTIMIZER_HOOKS):
            _count_on(value)


def hooks_of_all() -> dict[str, Any]:
    """Return the hooks of all modules and all optimizers that the user registered, by variable."""
    found = {name: _of_the_user(getattr(owner, name, {})) for owner, name in _OF_ALL}
    return {name: hooks for name, hooks in found.items() if hooks} | {
        _IS_FULL: getattr(_modules, _IS_FULL, None)
    }


def take_hooks_of_all(found: dict[str, Any]) -> None:
    """Register in this process what `hooks_of_all` found in another."""
    for owner, name in _OF_ALL:
        if name in found:
            getattr(owner, name).update(found[name])
            _count_on(found[name])
    if found.get(_IS_FULL) is not None:
        setattr(_modules, _IS_FULL, found[_IS_FULL])


def parameter_hooks(model: nn.Module) -> list[str]:
    """Return the names of the parameters of ``model`` whose gradient has hooks of the user."""
    named = model.named_parameters()
    return [name for name, parameter in named if _hooks_of(parameter, TENSOR_HOOKS)]


def step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the user has hooks around the steps of ``optimizer``, or of all optimizers."""
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    return bool(_hooks_of(optimizer, OPTIMIZER_HOOKS[:2])) or any(
        _of_the_user(getattr(_optimizers, name)) for name in names
    )


def _hooks_of(obj: Any, names: tuple[str, ...]) -> dict[str, _Hooks]:
    found = {name: _of_the_user(getattr(obj, name, None) or {}) for name in names}
    return {name: hooks for name, hooks in found.items() if hooks}


def _of_the_user(hooks: Any) -> _Hooks:
    """Return the hooks that are not ours.

    The result is the same dictionary, to which handles point, if none is ours.
    """
    ours = [number for number, hook in hooks.items() if is_ours(hook)]
    if not ours:
        return hooks
    return OrderedDict((number, hook) for number, hook in hooks.items() if number not in ours)


def is_ours(hook: Any) -> bool:
    """Return whether a hook or a mode is Workbench's own, which watches this process."""
    return str(getattr(hook, "__module__", "")).startswith("workbench.")


def _count_on(hooks: Any) -> None:
    """Let later handles have numbers that are not among these."""
    numbers = cast("_Hooks", hooks)
    RemovableHandle.next_id = max(RemovableHandle.next_id, *(one + 1 for one in numbers), 0)
