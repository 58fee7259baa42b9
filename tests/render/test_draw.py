"""Images of surfaces against the plain reference, and what must hold whatever the scene."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.render import reference, scenes
from tests.render.scenes import on_black
from torch import Tensor

from kinema.errors import EmptyImageWarning, InputError
from kinema.rendering import draw
from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material, Surface
from kinema.scene.description import Mesh

EVERYTHING = ("rgb", "alpha", "depth", "face", "normal")


def one(dtype: torch.dtype = torch.float64) -> Surface:
    x = scenes.numbers(0)
    return Surface(x["vertices"].to(dtype), scenes.ROUND_FACES, Material(x["colour"].to(dtype), specular=0.2))


def seen_from(size: tuple[int, int] = scenes.SIZE, dtype: torch.dtype = torch.float64) -> Camera:
    return Camera.look_at((3.0, 0.5, 0.4), (0.0, 0.0, 0.0), size=size, fov=0.7, dtype=dtype)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("perspective", [True, False])
def test_images_and_gradients_are_those_of_the_reference(seed: int, perspective: bool) -> None:
    x = {name: number.clone().requires_grad_() for name, number in scenes.numbers(seed).items()}
    args = scenes.surfaces(x), scenes.camera(x)
    options = {"sigma": x["sigma"], "perspective": perspective}
    look = RenderOptions(lights=scenes.lights(x), background=x["background"], **options)
    found = render(*args, outputs=EVERYTHING, options=look)
    expected = reference.dibr(*args, scenes.lights(x), x["background"], **options)
    assert torch.equal(found["face"].long(), expected["face"])
    for name in ("rgb", "alpha", "depth", "normal"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)  # roundings
    g = torch.Generator().manual_seed(seed)
    weights = torch.randn(*scenes.SIZE[::-1], 8, generator=g, dtype=torch.float64)

    def gradients(images: dict[str, Tensor]) -> dict[str, Tensor]:
        several = [images["rgb"], images["alpha"][..., None], images["depth"][..., None], images["normal"]]
        loss = (torch.cat(several, dim=-1) * weights).sum()
        return dict(zip(x, torch.autograd.grad(loss, list(x.values())), strict=True))

    found, expected = gradients(found), gradients(expected)
    for given in (found, expected):  # that of turns: what a rotation cannot do has no meaning
        turned = x["R"].detach().T @ given["R"]
        given["R"] = turned - turned.T
    for name in x:
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-9 * scale + 1e-12)


def test_float32_draws_the_same_image() -> None:
    fine, coarse = (
        render(one(t), seen_from(dtype=t), outputs=EVERYTHING, options=on_black())
        for t in (torch.float64, torch.float32)
    )
    same = fine["face"] == coarse["face"]
    assert (~same).sum() <= 2  # an edge through the middle of a pixel, to rounding
    for name in ("rgb", "alpha", "depth", "normal"):
        off = (fine[name] - coarse[name]).abs()[same]
        assert off.max() < 1e-3  # 1e-7 times the sharpness of outlines (7000) and of highlights


def test_batches_have_the_bits_of_single_images_for_any_number_of_threads() -> None:
    surface, camera = one(torch.float32), seen_from(dtype=torch.float32)
    shifts = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, 0.2], [0.0, -0.3, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, -0.4]])
    batch = surface.vertices + shifts[:, None]

    def run(vertices: Tensor, threads: int) -> tuple[Tensor, Tensor]:
        leaf = vertices.clone().requires_grad_()
        drawn = Surface(leaf, surface.faces, surface.material)
        rgb = render(drawn, camera, options=on_black(threads=threads))
        (gradient,) = torch.autograd.grad(rgb.square().sum(), leaf)
        return rgb.detach(), gradient

    rgb, gradient = run(batch, 1)
    assert rgb.shape == (5, *scenes.SIZE[::-1], 3)
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(run(batch, threads), (rgb, gradient), strict=True))
    for i, vertices in enumerate(batch):
        assert all(torch.equal(a, b[i]) for a, b in zip(run(vertices, 1), (rgb, gradient), strict=True))


def test_batches_of_cameras_colours_and_lights_are_broadcast() -> None:
    surface, camera = one(), seen_from()
    t = camera.t + torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0]]).double()[:, None]  # (2, 1, 3)
    ambient = torch.rand(3, 3).double()  # (3, 3)
    moved = Camera(camera.R, t, camera.focal, camera.centre, *scenes.SIZE)
    rgb = render(surface, moved, options=on_black(lights=Lights(ambient=ambient)))
    assert rgb.shape == (2, 3, *scenes.SIZE[::-1], 3)
    single = Camera(camera.R, t[1, 0], camera.focal, camera.centre, *scenes.SIZE)
    assert torch.equal(rgb[1, 2], render(surface, single, options=on_black(lights=Lights(ambient=ambient[2]))))


def test_supersampling_is_the_mean_of_a_larger_image() -> None:
    width, height = scenes.SIZE
    found = render(one(), seen_from(), outputs=("rgb", "alpha"), options=on_black(supersample=2))
    large = render(one(), seen_from((2 * width, 2 * height)), outputs=("rgb", "alpha"), options=on_black())
    for name, tail in (("rgb", (3,)), ("alpha", ())):
        mean = large[name].reshape(height, 2, width, 2, *tail).mean((1, 3))
        torch.testing.assert_close(found[name], mean, rtol=0, atol=1e-14)  # roundings


def test_coverage_alone_is_that_of_the_whole_image() -> None:
    both, alone = (render(one(), seen_from(), outputs=o)["alpha"] for o in (("rgb", "alpha"), ("alpha",)))
    assert torch.equal(both, alone)


def test_images_are_continuous_where_an_outline_moves_over_pixels() -> None:
    """A long edge moves over another triangle by a hundredth of a pixel a time: no pixel jumps."""
    camera = seen_from((16, 16))
    back = torch.tensor([[0.0, -2.0, -2.0], [0.0, 2.0, -2.0], [0.0, 0.0, 3.0]]).double()
    front = torch.tensor([[1.0, -0.3, -9.0], [1.0, -0.2, 9.0], [1.0, -18.0, 0.0]]).double()  # no corner in sight
    faces = torch.tensor([[0, 1, 2]])

    def rgb(shift: float) -> Tensor:
        white = Material(torch.ones(3).double(), lit=False)
        black = Material(torch.zeros(3).double(), lit=False)
        near = Surface(front + torch.tensor([0.0, shift, 0.0]).double(), faces, black, two_sided=True)
        behind = Surface(back, faces, white, two_sided=True)
        return render([behind, near], camera, options=on_black(sigma=1 / 200))

    images = torch.stack([rgb(1e-3 * i) for i in range(200)])
    steps = images.diff(dim=0).abs()
    # exp(-d^2 / sigma) has a slope of 0.86 / sqrt(sigma) = 12 at most, a step is 1.4e-3 on the screen; what comes into
    # reach adds 1e-4.
    assert 1e-3 < steps.max() < 0.02


def test_only_what_is_between_near_and_far_is_drawn() -> None:
    """A ball of radius 1 is 3.07 m away: what is seen of it is 2.1 m to 2.7 m from the camera."""
    points, faces = scenes.sphere(20, 40)
    ball = Surface(points / points.norm(dim=-1, keepdim=True), faces)
    for near, far, all_of_it in ((0.01, 4.5, True), (0.01, 2.4, False), (2.5, 1000.0, False), (0.01, 1.0, None)):
        camera = replace(seen_from(), near=near, far=far)
        with pytest.warns(EmptyImageWarning, match="far") if all_of_it is None else nullcontext():
            found = render(ball, camera, outputs=("face", "depth", "alpha"))
        covered, depth = found["face"] >= 0, found["depth"]
        if all_of_it is None:
            assert not covered.any() and not found["alpha"].any()
            continue
        assert covered.any() and depth[covered].min() >= near and depth[covered].max() <= far
        whole = render(ball, seen_from(), outputs="face") >= 0
        assert torch.equal(covered, whole) == all_of_it


def test_lists_grow_until_they_hold_what_is_near() -> None:
    v, faces = scenes.sphere(20, 40)
    surface = Surface(v, faces, Material(torch.rand(3).double()))
    found = render(surface, seen_from((96, 64)), outputs=("rgb", "alpha"), options=on_black())
    room = draw.topology_of([surface]).room[96, 64, 1, False]
    assert all(room[i] > draw.FIRST_ROOM[i] for i in (0, 2))  # packets inside, faces near those outside
    again = render(surface, seen_from((96, 64)), outputs=("rgb", "alpha"), options=on_black())
    assert torch.equal(found["rgb"], again["rgb"])


def test_faces_with_the_same_numbers_are_drawn_by_the_same_programs() -> None:
    surface = one()
    same, wide = (replace(surface, faces=faces) for faces in (surface.faces.clone(), surface.faces.long()))
    other = replace(surface, faces=surface.faces[1:])
    known = draw.topology_of([surface])
    assert draw.topology_of([same]) is known and draw.topology_of([wide]) is known
    assert draw.topology_of([other]) is not known
    assert torch.equal(*(render(s, seen_from(), options=on_black()) for s in (surface, same)))


def test_faces_and_points_that_were_edited_are_looked_at_again() -> None:
    surface = one()
    turned = replace(surface, faces=surface.faces.clone(), points=torch.arange(surface.vertices.shape[-2]))
    before = render(turned, seen_from(), outputs="face")
    turned.faces.copy_(surface.faces.flip(-1))  # its inside
    after = render(turned, seen_from(), outputs="face")
    fresh = render(replace(surface, faces=surface.faces.flip(-1)), seen_from(), outputs="face")
    assert torch.equal(after, fresh) and not torch.equal(after, before)
    known = draw.topology_of([turned])
    turned.points[1] = 0  # two vertices are one point
    assert draw.topology_of([turned]) is not known


def test_an_output_may_be_named_twice() -> None:
    surface = replace(one(), vertices=one().vertices.requires_grad_())
    once, twice = (render(surface, seen_from(), outputs=names) for names in (("rgb",), ("rgb", "rgb")))
    assert list(twice) == ["rgb"] and torch.equal(once["rgb"], twice["rgb"])
    assert torch.equal(*(torch.autograd.grad(o["rgb"].sum(), surface.vertices)[0] for o in (once, twice)))


def test_faces_of_the_inference_mode_are_drawn() -> None:
    surface = one()
    wanted = render(surface, seen_from(), options=on_black())
    with torch.inference_mode():
        fresh = replace(surface, faces=surface.faces.clone())
        assert torch.equal(render(fresh, seen_from(), options=on_black()), wanted)
        fresh.faces.copy_(surface.faces.flip(-1))
        assert not torch.equal(render(fresh, seen_from(), options=on_black()), wanted)


def test_colours_of_another_dtype_may_be_edited_between_images() -> None:
    """What is made from what the user gives is not remembered."""
    colour, lights = torch.tensor([0.2, 0.4, 0.6]), Lights(ambient=torch.full((3,), 0.25))
    surface = replace(one(), material=Material(colour, lit=True))
    first = render(surface, seen_from(), options=on_black(lights=lights))
    colour *= 2.0
    second = render(surface, seen_from(), options=on_black(lights=lights))
    lights.ambient.data = torch.zeros(3)
    third = render(surface, seen_from(), options=on_black(lights=lights))
    torch.testing.assert_close(second, 2.0 * first, rtol=1e-12, atol=1e-12)  # roundings in float64
    assert float((second - third).max()) > 0.05


def test_what_makes_no_sense_is_refused() -> None:
    surface, camera = one(), seen_from()
    with pytest.raises(InputError, match="(?s)cannot be drawn.*nothing"):
        render([], camera, outputs=("rgb", "alpha"), options=on_black())
    with pytest.raises(InputError, match="unknown output"):
        render(surface, camera, outputs=("rbg",))
    with pytest.raises(InputError, match="supersampling cannot"):
        render(surface, camera, outputs=("depth",), options=RenderOptions(supersample=2))
    with pytest.raises(InputError, match="name missing vertices"):
        render(Surface(surface.vertices, surface.faces + 1), camera, outputs=("rgb", "alpha"), options=on_black())
    with pytest.raises(InputError, match="not triangles"):
        render(Surface(surface.vertices, surface.faces[:, :2]), camera, outputs=("rgb", "alpha"), options=on_black())


@pytest.mark.parametrize("sigma", [0.0, -1e-3, math.nan])
@pytest.mark.parametrize("soft", [None, Soft()], ids=["dibr", "soft"])
def test_widths_of_outlines_are_positive(sigma: float, soft: Soft | None) -> None:
    with pytest.raises(InputError, match="sigma of outlines is not positive"):
        render(one(), seen_from(), outputs=("rgb", "alpha"), options=on_black(sigma=sigma, soft=soft))


@pytest.mark.parametrize("wrong", [{"gamma": 0.0}, {"gamma": -1}, {"gamma": math.nan}, {"near": 2.0, "far": 2.0}])
def test_softness_that_would_divide_by_zero_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="of a soft image"):
        Soft(**wrong)


def test_textures_have_three_colours_and_places_to_be_read_at() -> None:
    with pytest.raises(InputError, match=r"texture of a material[\s\S]*\(4, 4\)[\s\S]*height, width, 3"):
        Material(texture=torch.zeros(4, 4))
    with pytest.raises(InputError, match="colour of a material"):
        Material(torch.zeros(4))
    with pytest.raises(InputError, match="'flag' has a texture, and no uv"):
        Surface(torch.zeros(3, 3), torch.tensor([[0, 1, 2]]), Material(texture=torch.zeros(4, 4, 3)), name="flag")


def test_a_mesh_is_to_be_made_a_surface_first() -> None:
    mesh = Mesh(np.zeros((3, 3)), np.zeros((1, 3), np.int32))
    for what in (mesh, [mesh]):
        with pytest.raises(InputError, match=r"got: Mesh[\s\S]*kn.Surface"):
            render(what, seen_from())


def test_as_many_colours_as_vertices_are_those_of_vertices() -> None:
    """A batch of as many plain colours is given for all vertices."""
    surface, white = one(), (1.0, 1.0, 1.0)
    count = surface.vertices.shape[-2]
    colours = torch.rand(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def drawn(colour: torch.Tensor) -> torch.Tensor:
        shown = replace(surface, material=Material(colour, lit=False))
        return render(shown, seen_from(), options=RenderOptions(background=white))

    single = drawn(colours)
    assert single.ndim == 3
    batch = drawn(colours[:, None].expand(-1, count, 3))
    assert batch.shape == (count, *single.shape)
    torch.testing.assert_close(batch[2], drawn(colours[2]), rtol=0, atol=1e-14)  # weights add up to 1 but for rounding
    assert (batch[2] - single).abs().max() > 0.1
    torch.testing.assert_close(drawn(colours[:-1])[2], drawn(colours[2]), rtol=0, atol=0)  # one less: a batch


def test_supersampling_brings_a_minified_texture_nearer_to_its_mean() -> None:
    """A checker of 67 x 67 tiles on 24 x 24 pixels, in black and white: each pixel should be 1/2."""
    tiles = torch.arange(67)
    texture = ((tiles[:, None] + tiles) % 2).double()[..., None].expand(-1, -1, 3)
    corners = torch.tensor([[-1.0, 0.0, -1.0], [1.0, 0.0, -1.0], [1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]]).double()
    sheet = Surface(
        corners,
        torch.tensor([[0, 1, 2], [0, 2, 3]]),
        Material(torch.ones(3, dtype=torch.float64), texture, lit=False),
        uv=0.5 + 0.5 * corners[:, [0, 2]],
    )
    camera = Camera.look_at((0.0, -4.0, 0.0), (0.0, 0.0, 0.0), fov=0.4, size=(24, 24), dtype=torch.float64)
    images = [render(sheet, camera, options=on_black(supersample=n)) for n in (1, 2, 4, 8)]
    errors = [float((image - 0.5).square().mean().sqrt()) for image in images]
    # A single sample is anything between 0 and 1; n x n of them, far from the tiles' own rhythm, cancel out.
    assert errors[0] > 0.15 and errors[2] < 0.3 * errors[0] and errors[3] < 0.1 * errors[0], errors
