"""What a gradient scaler keeps, against what it does."""

import torch

from workbench.torch_private import grad_scaler


def scaled(gradient: float):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((parameter * gradient).sum()).backward()
    scaler.unscale_(optimizer)
    return scaler, optimizer, parameter


def test_the_scale_is_a_tensor_once_a_loss_was_scaled() -> None:
    assert grad_scaler.scale_tensor(torch.amp.GradScaler("cpu")) is None
    scaler, _, _ = scaled(1.0)
    found = grad_scaler.scale_tensor(scaler)
    assert found is not None
    assert found.item() == scaler.get_scale() == 8.0


def test_what_unscaling_found() -> None:
    for gradient, overflowed in ((1.0, 0.0), (torch.inf, 1.0)):
        scaler, optimizer, _ = scaled(gradient)
        (found,) = grad_scaler.found_non_finite(scaler, optimizer)
        assert found.item() == overflowed


def test_a_step_whose_state_is_dropped_can_be_unscaled_again() -> None:
    scaler, optimizer, parameter = scaled(1.0)
    assert set(grad_scaler.states(scaler)) == {id(optimizer)}
    grad_scaler.states(scaler).clear()
    scaler.unscale_(optimizer)  # torch refuses a second time otherwise
    assert parameter.grad is not None
