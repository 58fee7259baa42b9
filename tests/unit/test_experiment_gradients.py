"""The gradient check of experiments: it avoids jumps beside a point, and sees wrong gradients all the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kinema.experiments import gradients

X = torch.tensor([1.0], dtype=torch.float64)
WINDOW = 0.1


class Wrong(torch.autograd.Function):
    """The identity with a wrong derivative."""

    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context, grad):
        return context.factor * grad, None


def loss(jump_at: float, factor: float):
    """sin x, with a jump of 1e-3 at a place."""

    def one(x: Tensor) -> Tensor:
        return torch.sin(Wrong.apply(x, factor)).sum() + 1e-3 * (x.detach().sum() > jump_at)

    return one


def test_a_jump_at_the_point_is_avoided():
    found = gradients.check(loss(1.0 + 1e-9, 1.0), X, WINDOW)
    assert found["moved"] > 0 and found["lines"][0]["error"] < 1e-6
    # The secant sees the jump: 1e-3 over a window of 0.2, of a slope of 0.54.
    assert found["lines"][0]["secant_error"] == pytest.approx(1e-3 / 0.2 / 0.54, rel=0.1)


def test_a_smooth_loss_is_checked_where_it_was_asked_for():
    assert gradients.check(loss(5.0, 1.0), X, WINDOW)["moved"] == 0


@pytest.mark.parametrize("jump_at", [5.0, 1.0 + 1e-9])
def test_a_wrong_gradient_is_seen(jump_at: float):
    found = gradients.check(loss(jump_at, 1.01), X, WINDOW)
    assert not gradients.claims([found])[0].ok
