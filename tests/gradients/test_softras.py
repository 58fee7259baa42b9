"""Soft images against the plain rasteriser, values and gradients, and against central differences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from tests.render import reference, soup
from tests.render.soup import SIZE, weights
from torch import Tensor

from kinema.errors import EmptyImageWarning
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Surface
from kinema.verification import random_images

NEAR, FAR = 1.0, 10.0


def soft_numbers(gamma: float, sigma: float = 2e-3) -> dict[str, Tensor]:
    options = {"sigma": sigma, "gamma": gamma, "near": NEAR, "far": FAR}
    return soup.numbers() | {k: torch.tensor(x, dtype=torch.float64) for k, x in options.items()}


def draw(
    t: Mapping[str, Tensor],
    size: tuple[int, int] = SIZE,
    surfaces: list[Surface] | None = None,
    outputs: tuple[str, ...] = ("rgb", "alpha"),
    threads: int | None = None,
) -> dict[str, Tensor]:
    options = RenderOptions(
        lights=random_images.lights(t),
        background=t["background"],
        sigma=t["sigma"],
        soft=Soft(t["gamma"], t["near"], t["far"]),
        threads=threads,
    )
    return render(surfaces or random_images.surfaces(t), soup.camera(t, size), outputs=outputs, options=options)


def plain(
    t: Mapping[str, Tensor], surfaces: list[Surface] | None = None, size: tuple[int, int] = SIZE
) -> dict[str, Tensor]:
    numbers = {name: t[name] for name in ("sigma", "gamma", "near", "far")}
    shown = surfaces or random_images.surfaces(t)
    return reference.soft(shown, soup.camera(t, size), random_images.lights(t), t["background"], **numbers)


def loss(image: Mapping[str, Tensor]) -> Tensor:
    return sum((a * weights(a)).sum() for a in image.values())


@pytest.mark.parametrize("gamma", [0.3, 1e-2, 1e-4, 1e-6])
def test_values_and_gradients_agree_with_the_reference(gamma: float):
    leaves = {k: a.requires_grad_() for k, a in soft_numbers(gamma).items()}
    ours, theirs = draw(leaves), plain(leaves)
    # exp(zn / gamma) amplifies rounding by 1 / gamma.
    for name in ("rgb", "alpha"):
        np.testing.assert_allclose(ours[name].detach(), theirs[name].detach(), atol=1e-13 / min(gamma, 0.1))
    found = torch.autograd.grad(loss(ours), list(leaves.values()))
    expected = torch.autograd.grad(loss(theirs), list(leaves.values()))
    for name, a, b in zip(leaves, found, expected, strict=True):
        if name == "R":  # only rotations mean the same to both: R^T stands for the inverse in one of them
            a, b = (g @ leaves["R"].detach().T for g in (a, b))
            a, b = a - a.T, b - b.T
        # A sharp image does not depend on how sharp it is: such gradients vanish.
        assert float(b.abs().max()) > 1e-3 or (gamma <= 1e-4 and name in ("gamma", "near", "far")), name
        assert float((a - b).abs().max()) <= 1e-11 / min(gamma, 0.1) * max(float(b.abs().max()), 1e-3), name


def test_triangles_of_the_scene_overlap():
    t = soft_numbers(1e-2)
    alone = [
        plain(t, [Surface(s.vertices, s.faces[f : f + 1], s.material, s.uv)])["alpha"]
        for s in random_images.surfaces(t)
        for f in range(len(s.faces))
    ]
    assert (torch.stack(alone) > 0.01).sum(0).double().mean() > 1.5


@pytest.mark.parametrize("outputs", [("rgb",), ("alpha",), ("rgb", "alpha")])
def test_gradients_against_central_differences(outputs: tuple[str, ...], gradient_errors):
    given = soft_numbers(gamma=0.1)
    shape = ("vertices0", "vertices1", "vertices2", "R", "t", "focal", "centre", "sigma")
    t = {name: given[name] for name in shape} if outputs == ("alpha",) else given

    def value(leaves: Mapping[str, Tensor]) -> Tensor:
        return loss(draw({**given, **leaves}, outputs=outputs))

    # Small steps: a pixel that crosses the cut-off changes by 1e-4, which no derivative sees.
    errors = gradient_errors(value, t, h=1e-7)
    assert max(errors.values()) <= 1e-6, str(errors)


def test_a_silhouette_is_the_alpha_of_an_image():
    leaves = {k: a.requires_grad_() for k, a in soft_numbers(1e-2).items()}
    whole, alone = draw(leaves), draw(leaves, outputs=("alpha",))
    assert set(alone) == {"alpha"}
    torch.testing.assert_close(alone["alpha"], whole["alpha"], rtol=0, atol=1e-14)
    moved = [leaves[name] for name in ("vertices0", "vertices1", "t", "focal", "sigma")]
    pairs = [torch.autograd.grad((a["alpha"] * weights(a["alpha"])).sum(), moved) for a in (whole, alone)]
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))


@pytest.mark.parametrize("gamma", [1e-2, 1e-4, 1e-6])
def test_what_is_hidden_is_left_out_only_if_it_does_not_show(gamma: float):
    """Without coverage, fragments far behind the front of a pixel are not listed: exp(-50) of what shows at most."""
    results = []
    for outputs in (("rgb",), ("rgb", "alpha")):
        leaves = {k: a.requires_grad_() for k, a in soft_numbers(gamma).items()}
        rgb = draw(leaves, outputs=outputs)["rgb"]
        moved = [leaves[name] for name in ("vertices0", "vertices1", "colour2", "texture", "background", "t")]
        results.append([rgb, *torch.autograd.grad((rgb * weights(rgb)).sum(), moved)])
    for a, b in zip(*results, strict=True):
        # Sums of a pixel come in another order; 1 / gamma amplifies their rounding.
        assert float((a - b).abs().max()) <= 1e-13 / gamma * float(b.abs().max())


def test_the_order_of_triangles_does_not_matter():
    t = soft_numbers(1e-2)
    turned = [
        Surface(s.vertices, s.faces.flip(0), s.material, s.uv, s.smooth, s.two_sided) for s in random_images.surfaces(t)
    ]
    one, other = draw(t), draw(t, surfaces=turned[::-1])
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-12)


def test_images_of_a_batch_are_those_drawn_alone():
    t = soft_numbers(1e-2)
    moved = torch.stack([t["vertices0"], t["vertices0"] * 0.9])
    batch = {**t, "vertices0": moved, "gamma": torch.tensor([1e-2, 1e-3], dtype=torch.float64)}
    together = draw(batch)
    for k in range(2):
        alone = draw({**t, "vertices0": batch["vertices0"][k], "gamma": batch["gamma"][k]})
        for name in alone:
            assert torch.equal(together[name][k], alone[name])


def test_threads_do_not_change_a_bit():
    results = []
    for threads in (1, 2):
        t = soft_numbers(1e-2)
        batch = {**t, "vertices0": torch.stack([t["vertices0"] * x for x in (1.0, 0.9, 0.8)])}
        leaves = {k: a.requires_grad_() for k, a in batch.items()}
        image = draw(leaves, (50, 40), threads=threads)
        results.append([*image.values(), *torch.autograd.grad(loss(image), list(leaves.values()))])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("gamma", [1e-4, 1e-6])
def test_float32_and_a_sharp_picture_are_finite(gamma: float):
    """sigma of SoftRas; triangles without area, seen exactly from the side, and behind the camera do not show."""
    t = {k: a.float() for k, a in soft_numbers(gamma, sigma=1e-5).items()}
    t["vertices1"][0:3] = t["vertices1"][0].clone()
    t["vertices1"][3:6] = torch.tensor([[0.3, -4.0, 1.1], [0.3, -4.0, 1.1], [0.3, -4.0, 1.1]])
    leaves = {k: a.requires_grad_() for k, a in t.items()}
    image = draw(leaves)
    gradients = dict(zip(leaves, torch.autograd.grad(loss(image), list(leaves.values())), strict=True))
    assert all(a.isfinite().all() for a in (*image.values(), *gradients.values()))
    assert (gradients["vertices1"][:6] == 0).all() and (gradients["vertices2"][3:6] == 0).all()
    assert (gradients["vertices0"].abs().sum() > 0).all()


def test_nothing_in_view_shows_the_background():
    t = soft_numbers(1e-2)
    for k in range(3):
        t[f"vertices{k}"] = t[f"vertices{k}"] + 100.0
    with pytest.warns(EmptyImageWarning, match="beside the camera's view"):
        image = draw(t)
    assert (image["rgb"] == t["background"]).all() and (image["alpha"] == 0).all()


def test_behind_the_background_nothing_shows():
    """Depths beyond `far` score less than the background, however sharp the comparison is."""
    t = soft_numbers(1e-6)
    t["far"] = torch.tensor(1.5, dtype=torch.float64)
    image = draw(t)
    assert image["alpha"].max() > 0.5
    far_away = (plain(t)["rgb"] - t["background"]).abs().amax(-1) < 1e-12
    assert far_away.all()
    torch.testing.assert_close(image["rgb"], t["background"].expand_as(image["rgb"]), rtol=0, atol=1e-12)


def test_lists_grow_with_the_softness():
    """A first guess of the room that does not hold is corrected: every triangle touches every pixel."""
    t = soft_numbers(1e-2, sigma=50.0)
    size = (64, 64)
    image, expected = draw(t, size), plain(t, size=size)
    for name in image:
        np.testing.assert_allclose(image[name], expected[name], atol=1e-11)  # rounding / gamma
    assert expected["alpha"].min() > 0.999
