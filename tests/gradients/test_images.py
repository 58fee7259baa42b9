"""Gradients of random images of loose triangles: against central differences, and where faces are degenerate."""

from __future__ import annotations

import pytest
import torch

from kinema.lang.build import compiler
from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Surface
from kinema.verification.random_images import (
    LEFT_OUT,
    LIMIT,
    MODES,
    SIZE,
    Outcome,
    compare,
    draw,
    numbers,
    try_degenerate,
)

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_central_differences(mode: str):
    """25 scenes: several objects, overlap, occlusion, edge-on, tiny and behind-camera triangles; all tensors."""
    seen = Outcome()
    for seed in range(25):
        compare(seed, mode, seen)
    print(f"{mode}: of {seen.pixels} pixels {seen.flips} flipped, {seen.rough} were not smooth; worst {seen.worst}")
    assert seen.worst[0] <= LIMIT, seen.worst
    assert seen.flips + seen.rough <= LEFT_OUT * seen.pixels


def test_scenes_hide_and_leave_out_what_they_should():
    """Many pixels are covered, by all surfaces; faces behind the camera, or with a corner there, are not seen."""
    faces = torch.stack([draw(numbers(seed, "dibr"), "dibr")[1] for seed in range(25)])
    assert (faces >= 0).float().mean() > 0.2 and len((faces[faces >= 0] // 10).unique()) == 3
    assert not torch.isin(faces % 10, torch.tensor([4, 5]))[faces >= 0].any()


@pytest.mark.parametrize("mode", MODES)
def test_degenerate_faces_give_finite_numbers(mode: str):
    """520 images for each mode, every other forty in single precision, and the gradients to all tensors."""
    seen = Outcome()
    for seed in range(13):
        try_degenerate(seed, 40, mode, seen, (torch.float64, torch.float32)[seed % 2])
    assert seen.degenerate == 520 and not seen.wrong, "\n".join(seen.wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("outputs", ["alpha", "rgb"])
@pytest.mark.parametrize("bad", [(0, 0, 1), (0, 1, 3)], ids=["two equal corners", "three in a line"])
def test_a_soft_image_does_not_feel_a_face_without_area(bad: tuple[int, ...], outputs: str, dtype: torch.dtype):
    """Whatever its place in the list; lanes that have nothing to do read some face, too."""
    corners = torch.tensor([[-1.0, 0.0, -1.0], [1.0, 0.0, -1.0], [0.0, 0.0, 1.0], [3.0, 0.0, -1.0]], dtype=dtype)
    camera = Camera.look_at((0.0, -4.0, 0.0), (0.0, 0.0, 0.0), size=SIZE, dtype=dtype)
    gradients = []
    for faces in ([(0, 1, 2)], [bad, (0, 1, 2)], [(0, 1, 2), bad]):
        vertices = corners.clone().requires_grad_()
        surface = Surface(vertices, torch.tensor(faces), smooth=False)
        image = render(surface, camera, outputs=outputs, options=RenderOptions(sigma=1e-3, soft=Soft()))
        gradients.append(torch.autograd.grad((image * torch.linspace(0, 1, 24, dtype=dtype)[:, None]).sum(), vertices))
    assert gradients[0][0].abs().max() > 0.1
    for (other,) in gradients[1:]:
        assert torch.equal(other, gradients[0][0])
