"""Derivatives of what is drawn: of vertices and of images, with respect to states, parameters and smoke."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError
from kinema.rendering import topology
from kinema.rendering.ground import shadows_of
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.sheet import sheet

F64 = torch.float64
ROD = MassProperties(1.0, (0.0, 0.0, -0.5), (0.08, 0.0, 0.0, 0.08, 0.0, 0.001))
LOOK = kn.RenderOptions(dtype=F64, background=(0.2, 0.3, 0.9), sigma=1e-4)
EYE, AT = (0.4, -4.0, 1.6), (0.1, 0.0, 1.2)


def model(ground: bool = False) -> kn.Model:
    """A double pendulum with a box and a ball, and a flag on it."""
    box = Shape("box", (0.15, 0.1, 0.3), Pose((0.0, 0.0, -0.4)), name="box")
    ball = Shape("sphere", (0.2,), Pose((0.0, 0.0, -0.7)), name="ball")
    hinge = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}
    bodies = (
        Body("a", None, Pose((0.0, 0.0, 2.0)), (Joint("one", **hinge),), ROD, (box,)),
        Body("b", "a", Pose((0.0, 0.0, -0.8)), (Joint("two", **hinge),), ROD, (ball,)),
    )
    scene = kn.Scene()
    if ground:
        scene.add_ground()
    scene.add_robot(Robot("arm", bodies))
    scene.add_cloth(sheet(0.4, 0.4, squares=(2, 2)), "flag", pos=(0.7, 0.0, 1.5), rot=(0.8, 0.6, 0.0, 0.0))
    scene.attach("flag", [0], "arm/a")
    return kn.compile(scene)


def seen(size: int = 24) -> kn.Camera:
    return kn.Camera.look_at(EYE, AT, fov=0.6, size=(size, size), dtype=F64)


def test_vertices():
    made = model()
    q = torch.tensor([0.3, -0.4], dtype=F64, requires_grad=True)
    x = (made.initial_state().x + 0.01 * torch.randn(9, 3, generator=torch.Generator().manual_seed(0))).requires_grad_()
    params = made.parameters("arm/a/box/size", "arm/b/ball/centre", "arm/two/offset", requires_grad=True)

    def vertices(q: Tensor, x: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        drawn = kn.surfaces_of(made, kn.State(q=q, x=x), params=dict(zip(params, numbers, strict=True)), dtype=F64)
        # the ball has many vertices: a few of them
        return tuple(s.vertices[..., ::37, :] if len(s.faces) > 500 else s.vertices for s in drawn)

    assert torch.autograd.gradcheck(vertices, (q, x, *params.values()))


@pytest.mark.parametrize("told", [False, True], ids=["those of the run", "told"])
def test_parameters_of_worlds_hold_at_all_times(told):
    made = model()
    size = torch.tensor([[0.1, 0.1, 0.3], [0.2, 0.1, 0.3]], dtype=F64)
    params = {"arm/a/box/size": size, "arm/two/offset": torch.tensor([[0.0, 0.0, -0.8], [0.0, 0.0, -0.9]], dtype=F64)}
    start = torch.zeros(2, made.nq, dtype=F64)
    path = kn.simulate(made, kn.State(start), steps=4, dt=1e-4, params=params)
    drawn = kn.surfaces_of(path, every=2, params=params if told else None, dtype=F64)
    alone = kn.surfaces_of(made, path.states[1, 4], params={n: p[1] for n, p in params.items()}, dtype=F64)
    for many, one in zip(drawn, alone, strict=True):
        assert many.vertices.shape[:2] == (2, 3)
        assert torch.allclose(many.vertices[1, 2], one.vertices)


def test_images_of_a_run_have_gradients_to_its_parameters():
    """By what moves, and by how it looks: a length and a size are given once, to `simulate`."""
    made = model()
    own = made.parameters("arm/b/ball/size", "arm/two/offset")
    names, values = [*own, "arm/b/mass"], [*own.values(), torch.tensor(1.5, dtype=F64)]
    start = kn.State(torch.tensor([0.3, -0.4], dtype=F64))

    def middles(*numbers: Tensor) -> Tensor:
        path = kn.simulate(made, start, steps=2, dt=5e-4, params=dict(zip(names, numbers, strict=True)))
        ball = next(s for s in kn.surfaces_of(path, dtype=F64) if s.name == "arm/b")
        return torch.stack([ball.vertices.mean(-2), ball.vertices[..., 0, :]])

    leaves = [value.clone().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(middles, leaves)
    size, offset, _ = torch.autograd.grad(middles(*leaves)[1, :, 2].sum(), leaves)
    assert size[0].abs() > 1.0 and offset[2].abs() > 1.0  # three images


def test_the_radius_of_a_skin_is_that_of_the_run():
    scene = kn.Scene()
    scene.add_particles([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]], "beads", mass=0.1, skin=kn.Skin(radius=0.05))
    made = kn.compile(scene, dtype=F64)
    radius = torch.tensor([0.05, 0.2], dtype=F64, requires_grad=True)
    path = kn.simulate(made, steps=1, dt=1e-3, params={"beads/skin_radius": radius})
    one, two = kn.surfaces_of(path, dtype=F64)[0].vertices[:, 0]
    assert torch.equal(one, kn.surfaces_of(made, dtype=F64)[0].vertices)
    middle = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]], dtype=F64).repeat_interleave(42, 0)
    assert torch.allclose((two - middle).norm(dim=-1), torch.full((84,), 0.2, dtype=F64), rtol=1e-14)
    (slope,) = torch.autograd.grad((two - middle).norm(dim=-1).sum(), radius)
    assert torch.allclose(slope, torch.tensor([0.0, 84.0], dtype=F64))


def test_terrain_keeps_its_size():
    """It is drawn with the same triangles whatever numbers are given: its corners have no size to learn."""
    scene = kn.Scene()
    scene.add_terrain(height_field([[0.0, 0.1], [0.0, 0.1]], 2.0, 2.0), "hill")
    scene.add_body(kn.Sphere(0.1), mass=1.0, pos=(0.0, 0.0, 1.0), name="ball")
    made = kn.compile(scene)
    params = {"ball/body/0/size": torch.tensor([0.2, 0.0, 0.0], dtype=F64)}
    plain, resized = ({s.name: s.vertices for s in kn.surfaces_of(made, params=p, dtype=F64)} for p in (None, params))
    assert torch.allclose(plain["hill/ground"], resized["hill/ground"])
    centre = torch.tensor([0.0, 0.0, 1.0], dtype=F64)
    assert torch.allclose(2 * (plain["ball/body"] - centre), resized["ball/body"] - centre)


def test_shadows():
    made = model(ground=True)
    q = torch.tensor([0.3, -0.4], dtype=F64, requires_grad=True)
    light = torch.tensor([[0.3, 0.5, -1.0]], dtype=F64, requires_grad=True)

    def fall(q: Tensor, light: Tensor) -> tuple[Tensor, ...]:
        flat = shadows_of(kn.surfaces_of(made, kn.State(q=q), dtype=F64), kn.Lights(directions=light))
        return tuple(x[..., ::37, :] for one in flat for x in (one.vertices, one.uv))

    assert torch.autograd.gradcheck(fall, (q, light))


def difference(image, at: Tensor, way: Tensor, h: float) -> Tensor:
    with torch.no_grad():
        return (image(at + h * way) - image(at - h * way)) / (2 * h)


def test_images_of_a_state():
    """The sum over pixels with random weights.

    An image jumps where another face becomes the nearest one or leaves the reach of a soft outline; none does within h.
    """
    made = model()
    q = torch.tensor([0.3, -0.4], dtype=F64, requires_grad=True)
    weights = torch.rand(24, 24, 3, generator=torch.Generator().manual_seed(3), dtype=F64)

    def image(q: Tensor) -> Tensor:
        drawn = kn.render(made, seen(), state=kn.State(q=q), options=LOOK)
        return (drawn * weights).sum()

    (slope,) = torch.autograd.grad(image(q), q)
    for k in range(2):
        way = torch.eye(2, dtype=F64)[k]
        assert slope[k].item() == pytest.approx(difference(image, q, way, 1e-6).item(), rel=1e-5)


def test_images_of_a_trajectory_reach_the_start():
    """From pixels of several times through rendering and steps to the velocity at the start."""
    made = model()
    v = torch.tensor([1.0, -0.5], dtype=F64, requires_grad=True)
    weights = torch.rand(3, 24, 24, 3, generator=torch.Generator().manual_seed(3), dtype=F64)

    def film(v: Tensor) -> Tensor:
        path = kn.simulate(made, kn.State(v=v), steps=40, dt=5e-4)
        drawn = kn.render(path, seen(), every=20, options=LOOK)
        return (drawn * weights).sum()

    (slope,) = torch.autograd.grad(film(v), v)
    assert slope.abs().min() > 1e-3
    for k in range(2):
        way = torch.eye(2, dtype=F64)[k]
        assert slope[k].item() == pytest.approx(difference(film, v, way, 1e-6).item(), rel=1e-5)


def test_images_of_smoke():
    box = kn.SmokeBox((6, 6), 1.0)
    density = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=F64)
    velocity = box.project(
        0.5 * torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    ).requires_grad_()
    camera = kn.Camera.look_at((0.5, -2.0, 0.5), (0.5, 0.0, 0.5), fov=0.6, size=(20, 20), dtype=F64)
    weights = torch.rand(3, 20, 20, 3, generator=torch.Generator().manual_seed(3), dtype=F64)

    def film(velocity: Tensor) -> Tensor:
        path = kn.simulate_smoke(box, density, velocity, steps=4, dt=0.01)
        return (kn.render(path, camera, every=2, options=kn.RenderOptions(dtype=F64)) * weights).sum()

    (slope,) = torch.autograd.grad(film(velocity), velocity)
    way = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(4), dtype=F64)
    assert (slope * way).sum().item() == pytest.approx(difference(film, velocity, way, 1e-6).item(), rel=1e-6)


def test_what_is_drawn_is_where_the_camera_projects_it():
    """A ball fills a disc about where its centre is projected; pixels of its outline count with their coverage."""
    made = model()
    q = torch.tensor([0.3, -0.4], dtype=F64)
    ball = next(s for s in kn.surfaces_of(made, kn.State(q=q), dtype=F64) if s.name == "arm/b")
    camera = seen(128)
    alpha = kn.render(ball, camera, outputs="alpha", options=kn.RenderOptions(sigma=1e-6))
    u, v, z = camera.project(ball.vertices.mean(-2, keepdim=True))[0].tolist()
    columns, rows = (torch.arange(128, dtype=F64) + 0.5 for _ in range(2))
    share = alpha / alpha.sum()
    # a third of a pixel: perspective moves the outline of a ball of 0.2 m at 4 m by (0.2/4)^2 of its place
    assert (share.sum(0) @ columns).item() == pytest.approx(u, abs=0.3)
    assert (share.sum(1) @ rows).item() == pytest.approx(v, abs=0.3)
    disc = torch.pi * (0.2 * camera.focal[0].item() / z) ** 2
    assert alpha.sum().item() == pytest.approx(disc, rel=0.05)


def test_outputs_batches_and_supersampling():
    made = model()
    q = torch.tensor([[0.3, -0.4], [0.0, 0.0]], dtype=F64)
    both = kn.render(made, seen(), state=kn.State(q=q), outputs=("rgb", "alpha"))
    assert both["rgb"].shape == (2, 24, 24, 3) and both["alpha"].shape == (2, 24, 24)
    assert both["rgb"].dtype == torch.float32
    whole = kn.render(made, seen(), state=kn.State(q=q), outputs="rgba")
    assert torch.equal(whole, torch.cat([both["rgb"], both["alpha"].unsqueeze(-1)], -1))
    fine = kn.render(made, seen(48), state=kn.State(q=q))
    assert torch.allclose(
        kn.render(made, seen(), state=kn.State(q=q), options=kn.RenderOptions(supersample=2)),
        fine.reshape(2, 24, 2, 24, 2, 3).mean((2, 4)),
        atol=1e-5,
    )
    assert kn.render(made, size=(32, 16)).shape == (16, 32, 3)
    eyes = torch.tensor(EYE, dtype=F64) + torch.tensor(
        [[[0.0, 0.0, 0.0]], [[0.5, 0.0, 0.0]], [[1.0, 0.0, 0.0]]], dtype=F64
    )
    cameras = kn.Camera.look_at(eyes, AT, size=(24, 24))
    assert kn.render(made, cameras, state=kn.State(q=q)).shape == (3, 2, 24, 24, 3)


def test_a_scene_is_prepared_once():
    made = model()
    kn.render(made, seen())
    before = len(topology._TOPOLOGIES)
    kn.render(made, seen(), state=kn.State(q=torch.tensor([0.5, 0.1], dtype=F64)))
    assert len(topology._TOPOLOGIES) == before


def test_doubled_vertices_have_no_outline_between_them():
    """A box whose corners are doubled for its normals looks as one of eight vertices with flat faces does.

    With outlines between its sides, these would fade over each other.
    """
    made = model()
    turned = torch.tensor([0.6, 0.0], dtype=F64)
    box = next(s for s in kn.surfaces_of(made, kn.State(q=turned), dtype=F64) if s.name == "arm/a")
    camera = kn.Camera.look_at(
        (2.0, -3.0, 2.6), (-0.2, 0.0, 1.7), fov=0.4, size=(48, 48), dtype=F64
    )  # sees three sides
    points = box.points.long()
    eight = torch.zeros(8, 3, dtype=F64).index_copy(0, points, box.vertices)
    joined = replace(box, vertices=eight, faces=points[box.faces.long()], points=None, smooth=False)
    whole, flat, apart = (
        kn.render(one, camera, options=kn.RenderOptions(sigma=1e-3)) for one in (box, joined, replace(box, points=None))
    )
    assert torch.allclose(whole, flat, atol=1e-12)
    assert (whole - apart).abs().max() > 0.05


def test_what_is_refused():
    made = model()
    for outputs in ("heat", ()):
        with pytest.raises(InputError, match="unknown output"):
            kn.render(made, seen(), outputs=outputs)
    for option, value in (
        ("supersample", 0),
        ("soft", True),
        ("lights", torch.ones(3)),
        ("materials", kn.Material()),
        ("sigma", 0.0),
    ):
        with pytest.raises(InputError, match=option):
            kn.RenderOptions(**{option: value})
    with pytest.raises(InputError, match="side of a tile"):
        kn.RenderOptions(ground=-1.0)
    with pytest.raises(InputError, match="(?s)options has the wrong type.*RunOptions"):
        kn.render(made, seen(), options=kn.RunOptions())
    with pytest.raises(InputError, match=r"(?s)the state has the wrong type.*Tensor.*State\(q="):
        kn.render(made, seen(), state=torch.zeros(2, dtype=F64))
    with pytest.raises(InputError, match="no foreground"):
        kn.render(made, seen(), outputs=("rgb", "depth"), options=kn.RenderOptions(soft=kn.Soft()))
    with pytest.raises(InputError, match="no surface"):
        kn.render(kn.compile(kn.Scene()), seen())
    with pytest.raises(InputError, match="cannot be drawn"):
        kn.render([], seen())
    with pytest.raises(InputError, match="cannot be drawn"):
        kn.render([made], seen())
    with pytest.raises(InputError, match="no state"):
        kn.render(kn.surfaces_of(made), seen(), every=2)


def test_depth_and_normals_of_a_plane():
    """A tilted square: both are known in closed form at every pixel, seen from either side."""
    normal = torch.tensor([0.3, -1.0, 0.4], dtype=F64)
    normal = normal / normal.norm()
    right = torch.linalg.cross(normal, torch.tensor([0.0, 0.0, 1.0], dtype=F64))
    up = torch.linalg.cross(right, normal)
    centre = torch.tensor([0.1, 0.5, 1.2], dtype=F64)
    corners = torch.stack([centre + 5 * (i * right + j * up) for i, j in ((1, -1), (-1, -1), (-1, 1), (1, 1))])
    camera = seen()
    u = torch.arange(24, dtype=F64) + 0.5
    x, y = ((u - 12) / camera.focal[0] for _ in range(2))
    rays = torch.stack([x.expand(24, 24), y[:, None].expand(24, 24), torch.ones(24, 24, dtype=F64)], -1) @ camera.R
    depth = ((centre - camera.eye) @ normal) / (rays @ normal)
    for smooth in (True, False):
        for faces in ([[0, 1, 2], [0, 2, 3]], [[0, 2, 1], [0, 3, 2]]):
            square = kn.Surface(corners, torch.tensor(faces), smooth=smooth, two_sided=True)
            found = kn.render(square, camera, outputs=("depth", "normal"))
            assert torch.allclose(found["depth"], depth)
            assert torch.allclose(found["normal"], normal.expand(24, 24, 3))
    empty = replace(square, vertices=corners + torch.tensor([0.0, -100.0, 0.0], dtype=F64))
    with pytest.warns(kn.EmptyImageWarning, match="behind the camera"):
        assert (kn.render(empty, camera, outputs="depth") == 0).all()


def test_a_camera_that_sees_nothing_is_reported_once_for_a_line():
    """In either mode, for all reasons that there are; not if one image of a batch has anything in it."""
    corners = torch.tensor([[0.0, 0.0, -1.0], [1.0, 0.0, -1.0], [0.0, 0.0, 1.0]])
    front, back = (kn.Surface(corners, torch.tensor([face])) for face in ((0, 1, 2), (2, 1, 0)))
    there, away = (kn.Camera.look_at((0.0, -5.0, 0.0), (0.0, y, 0.0), size=(24, 24)) for y in (0.0, -10.0))
    aside = kn.Camera.look_at((0.0, -5.0, 0.0), (5.0, 0.0, 0.0), size=(24, 24))
    short = replace(there, far=4.0)
    for soft in (None, kn.Soft()):
        options = kn.RenderOptions(sigma=1e-5, soft=soft)
        for surface, camera, why in (
            (front, away, "behind the camera"),
            (front, aside, "beside the camera's view"),
            (front, short, "beyond the camera's far"),
            (replace(front, vertices=0.0 * corners), there, "too small"),
        ):
            with pytest.warns(kn.EmptyImageWarning, match=why) as seen_by:
                image = kn.render(surface, camera, options=options)
            assert (image == 1.0).all() and seen_by[0].filename == __file__
        both = torch.stack([there.R, away.R]), torch.stack([there.t, away.t])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kn.render(front, replace(there, R=both[0], t=both[1]), options=options)
    wide = replace(back, vertices=100.0 * corners - torch.tensor([20.0, 0.0, 0.0]))
    for outputs in ("rgb", "alpha", "depth"):
        with pytest.warns(kn.EmptyImageWarning, match="shows its back"):
            kn.render(wide, there, outputs=outputs)
    with pytest.warns(kn.EmptyImageWarning, match="behind the camera"):
        kn.rasterise(corners, front.faces, away)
    with warnings.catch_warnings(record=True) as seen_by:
        warnings.simplefilter("default")
        for k in range(3):
            kn.render(replace(front, vertices=corners + 0.1 * k), away)
    assert len(seen_by) == 1


def test_depth_and_normals_have_gradients():
    made = model()
    q = torch.tensor([0.3, -0.4], dtype=F64, requires_grad=True)
    weights = torch.rand(24, 24, generator=torch.Generator().manual_seed(3), dtype=F64)
    for name in ("depth", "normal"):

        def image(q: Tensor, name: str = name) -> Tensor:
            drawn = kn.render(made, seen(), state=kn.State(q=q), outputs=name, options=kn.RenderOptions(dtype=F64))
            return (drawn * (weights if name == "depth" else weights.unsqueeze(-1))).sum()

        (slope,) = torch.autograd.grad(image(q), q)
        assert slope.abs().min() > 1e-3
        for k in range(2):
            way = torch.eye(2, dtype=F64)[k]
            assert slope[k].item() == pytest.approx(difference(image, q, way, 1e-7).item(), rel=1e-5)


def test_soft_occlusion_is_an_option():
    made = model()
    plain, soft = (kn.render(made, seen(), options=kn.RenderOptions(sigma=1e-6, soft=s)) for s in (None, kn.Soft()))
    # with sharp edges and occlusion both draw the same; only pixels of outlines differ
    assert ((plain - soft).abs().amax(-1) > 0.02).float().mean() < 0.03
