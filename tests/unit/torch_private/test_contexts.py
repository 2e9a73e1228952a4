"""What a thread has entered, seen from inside."""

import torch
from torch.overrides import TorchFunctionMode

from workbench.torch_private import contexts


class Functions(TorchFunctionMode):
    pass


class Dispatch(contexts.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_modes_in_their_order() -> None:
    assert contexts.function_modes() == contexts.dispatch_modes() == ()
    outer, inner, dispatch = Functions(), Functions(), Dispatch()
    with outer, inner, dispatch:
        assert contexts.function_modes() == (outer, inner)
        assert contexts.dispatch_modes() == (dispatch,)
    assert contexts.function_modes() == contexts.dispatch_modes() == ()


def test_a_mode_is_pushed_and_popped_without_its_enter() -> None:
    mode, dispatch = Functions(), Dispatch()
    contexts.push_function_mode(mode)
    contexts.push_dispatch_mode(dispatch)
    assert contexts.function_modes() == (mode,)
    assert contexts.dispatch_modes() == (dispatch,)
    contexts.pop_dispatch_mode()
    contexts.pop_function_mode()
    assert contexts.function_modes() == contexts.dispatch_modes() == ()


def test_a_default_device_is_a_mode() -> None:
    with torch.device("meta"):
        (mode,) = contexts.function_modes()
        assert isinstance(mode, contexts.DeviceContext)
        assert mode.device.type == "meta"


def test_hooks_on_what_is_saved() -> None:
    assert contexts.saved_tensors_hooks() is None
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert contexts.saved_tensors_hooks() is not None
