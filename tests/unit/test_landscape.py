"""`kn.landscape`: losses and gradients on a grid, and their minima."""

import pytest
import torch

import kinema as kn

F64 = torch.float64


def wave(values):
    """A cosine of the angle a plus b, shape (candidates, frames)."""
    times = torch.linspace(0.0, 4.0, 33, dtype=F64)
    return torch.cos(values["a"].unsqueeze(-1) * times + values["b"].unsqueeze(-1))


TRUTH = {"a": torch.tensor(3.0, dtype=F64), "b": torch.tensor(0.5, dtype=F64)}
TARGET = wave({n: t.unsqueeze(0) for n, t in TRUTH.items()})[0]


def test_along_one_unknown(tmp_path):
    found = kn.landscape(wave, TARGET, {"a": (0.5, 9.5, 91)}, at=TRUTH, progress=False)
    assert found.best == pytest.approx((3.0,))
    assert len(found.minima) > 2 and found.minima[0] == found.best  # beats on both sides
    differences = (found.losses[2:] - found.losses[:-2]) / 0.2  # of second order: error below 3 % of the largest slope
    assert torch.allclose(found.gradients[1:-1, 0], differences, atol=0.05 * float(differences.abs().max()))
    assert found.at == (3.0,) and "local minima" in str(found)
    assert found.plot(tmp_path / "line.png").stat().st_size > 2000


def test_over_two_unknowns(tmp_path):
    found = kn.landscape(wave, TARGET, {"a": (2.5, 3.5, 21), "b": (0.0, 1.0, 11)}, progress=False)
    assert found.losses.shape == (21, 11) and found.gradients.shape == (21, 11, 2)
    assert found.best == pytest.approx((3.0, 0.5)) and found.minima == [found.best]
    i, j = 4, 7
    b = (found.losses[i, j + 1] - found.losses[i, j - 1]) / 0.2
    assert float(found.gradients[i, j, 1]) == pytest.approx(float(b), rel=0.02)
    assert found.plot(tmp_path / "plane.png").stat().st_size > 5000


def test_a_group_of_parameters_moves_together():
    scene = kn.Scene()
    scene.add_robot(kn.shapes.pendulum(2), "two")
    model = kn.compile(scene)
    state = model.initial_state(q=[0.5, 0.2])
    film = kn.fit.Experiment(model, kn.fit.States("q", every=10), steps=100, dt=5e-3, state=state)
    target = film({"two/damping": torch.full((1, 1), 0.3, dtype=F64)})[0]
    found = kn.landscape(film, target, {"two/damping": (0.1, 0.5, 5)}, progress=False)
    assert found.best == pytest.approx((0.3,)) and found.gradients.shape == (5, 1)
    assert float(found.gradients[0]) < 0 < float(found.gradients[-1])


@pytest.mark.parametrize("along", [{}, {"a": (1, 2)}, {"a": (2.0, 1.0, 5)}, {"a": (0, 1, 2)}, {"a": 1, "b": 2, "c": 3}])
def test_bad_axes(along):
    with pytest.raises(kn.InputError):
        kn.landscape(wave, TARGET, along, at=TRUTH)
