"""Fixtures of the gradient tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

EVERY_COMPONENT = 40  # larger tensors are tested along random directions


def relative_errors(
    function: Callable[[dict[str, Tensor]], Tensor], inputs: Mapping[str, Tensor], h: float, directions: int = 3
) -> dict[str, float]:
    """Reverse-mode gradients of a scalar function against central differences (float64).

    Args:
        function: The function of named tensors.
        inputs: Where it is differentiated.
        h: Step of the differences, relative to the largest component of a tensor.
        directions: Number of random directions for tensors with many components.

    Returns:
        For each input the largest difference, relative to the largest derivative, or to a hundredth of |value| /
        |input| if that is larger: what is far smaller drowns in the rounding of the differences.
    """
    leaves = {name: t.detach().double().clone().requires_grad_() for name, t in inputs.items()}
    value = function(leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()))
    generator = torch.Generator().manual_seed(0)
    errors = {}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        fixed = {n: t.detach() for n, t in leaves.items()}
        if leaf.numel() <= EVERY_COMPONENT:
            ways = torch.eye(leaf.numel(), dtype=torch.float64)
        else:
            ways = torch.randn(directions, leaf.numel(), dtype=torch.float64, generator=generator)
        size = float(leaf.detach().abs().max()) or 1.0
        step = h * size
        found, expected = [], []
        for way in ways:
            move = step * way.reshape(leaf.shape)
            with torch.no_grad():
                up, down = (function({**fixed, name: fixed[name] + sign * move}) for sign in (1.0, -1.0))
            expected.append(float(up - down) / (2 * step))
            found.append(float(gradient.reshape(-1) @ way))
        scale = max(max(map(abs, expected)), 1e-2 * abs(value.item()) / size)
        errors[name] = max(abs(a - b) for a, b in zip(found, expected, strict=True)) / scale
    return errors


@pytest.fixture
def gradient_errors() -> Callable[..., dict[str, float]]:
    """Relative errors of gradients against central differences, by input."""
    return relative_errors
