"""Scenes as triangles: shapes closed and of the right size, in the place that kinematics gives, with their colours."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError
from kinema.model.visuals import PALETTE
from kinema.rendering.ground import TILES, shadows_of
from kinema.rendering.surface import Surface
from kinema.rendering.triangles import SIDES, Triangles, small_ball, split_creases, triangles_of
from kinema.scene.description import Body, Joint, MassProperties, Mesh, Pose, Robot, Shape
from kinema.scene.shapes.block import block
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.sheet import sheet

F64 = torch.float64
ROD = MassProperties(1.0, (0.0, 0.0, -0.5), (0.08, 0.0, 0.0, 0.08, 0.0, 0.001))
HINGE = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}


def volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    return float(np.linalg.det(vertices[faces]).sum() / 6)


def is_closed(points: np.ndarray, faces: np.ndarray) -> bool:
    """Whether each side of a face is that of exactly one other, the other way round."""
    corners = points[faces]
    sides = [tuple(side) for k in range(3) for side in corners[:, [k, (k + 1) % 3]].tolist()]
    return len(set(sides)) == len(sides) and all((b, a) in set(sides) for a, b in sides)


VOLUMES = {
    "sphere": ((0.7,), 4 / 3 * math.pi * 0.7**3),
    "capsule": ((0.5, 0.8), math.pi * 0.25 * 1.6 + 4 / 3 * math.pi * 0.125),
    "cylinder": ((0.5, 0.8), math.pi * 0.25 * 1.6),
    "box": ((0.5, 0.6, 0.7), 8 * 0.5 * 0.6 * 0.7),
}


@pytest.mark.parametrize("sides", [4, 12, SIDES])
@pytest.mark.parametrize("kind", VOLUMES)
def test_shapes_are_closed_seen_from_outside_and_of_the_right_volume(kind: str, sides: int):
    size, expected = VOLUMES[kind]
    made: Triangles = triangles_of(kind, sides=sides)
    vertices = made.basis @ np.array((*size, 0.0, 0.0)[:3])
    assert is_closed(made.points, made.faces)
    # a polygon of n sides in a circle misses 2/3 (pi/n)^2 of its area, a ball as much again along the other way
    missed = 0.0 if kind == "box" else 2 * (math.pi / sides) ** 2
    assert expected * (1 - missed) <= volume(vertices, made.faces) <= expected * (1 + 1e-12)


def test_models_have_circles_of_any_number_of_sides():
    scene = kn.Scene()
    scene.add_body(kn.Sphere(0.5), mass=1.0, name="ball")
    model = kn.compile(scene)
    for sides in (8, SIDES):
        (ball,) = kn.surfaces_of(model, sides=sides)
        assert len(ball.faces) == sides * (sides - 2)
    camera = kn.Camera.look_at((0.0, -4.0, 0.0), (0.0, 0.0, 0.0), size=(64, 64))
    options = {n: kn.RenderOptions(sides=n) for n in (8, SIDES)}
    few, many = (kn.render(model, camera, options=one, outputs="alpha").sum() for one in options.values())
    octagon = 2 * math.sqrt(2) / math.pi  # its share of the area of the circle around it
    assert octagon - 0.03 < float(few / many) < 1.0
    for wrong in (6, 0, 8.0, True):
        with pytest.raises(InputError, match="sides"):
            kn.RenderOptions(sides=wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="sides"):
            kn.surfaces_of(model, sides=wrong)  # type: ignore[arg-type]


def test_vertices_of_creases_are_doubled_and_others_are_not():
    box, ball, cylinder = (triangles_of(kind) for kind in ("box", "sphere", "cylinder"))
    assert len(box.basis) == 24 and len(set(box.points.tolist())) == 8
    assert len(ball.basis) == len(set(ball.points.tolist()))
    assert len(cylinder.basis) == 2 + 4 * SIDES  # both rims
    vertices, faces = small_ball()
    source, again = split_creases(vertices, faces)
    assert np.array_equal(source, np.arange(42)[source]) and len(source) == 42 and len(again) == 80
    assert is_closed(np.arange(42), faces) and np.allclose(np.linalg.norm(vertices, axis=1), 1.0)


def arm(**words: object) -> Robot:
    tip = Shape("sphere", (0.1,), Pose((0.0, 0.0, -1.0)), name="tip", **words)  # type: ignore[arg-type]
    rod = Shape("capsule", (0.05, 0.4), Pose((0.0, 0.0, -0.5)), name="rod", collides=False, **words)  # type: ignore[arg-type]
    upper = Body("upper", None, Pose((0.0, 0.0, 2.0)), (Joint("one", **HINGE),), ROD, (rod, tip))
    return Robot(
        "arm",
        (
            upper,
            replace(upper, name="lower", parent="upper", pose=Pose((0.0, 0.0, -1.0)), joints=(Joint("two", **HINGE),)),
        ),
    )


def swinging(**words: object) -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(arm(**words))
    return kn.compile(scene)


def middle(surface: Surface, count: int) -> Tensor:
    """Of the last so many vertices."""
    return surface.vertices[..., -count:, :].mean(-2)


def test_bodies_are_where_kinematics_puts_them():
    model = swinging()
    q = torch.tensor([[0.3, -0.5], [1.0, 0.2], [0.0, 0.0]], dtype=F64)
    upper, lower = kn.surfaces_of(model, kn.State(q=q), dtype=F64)
    assert (upper.name, lower.name) == ("arm/upper", "arm/lower")
    poses = kn.forward_kinematics(model, q)
    tip = poses.position + (poses.rotation @ torch.tensor([0.0, 0.0, -1.0], dtype=F64))
    ball = len(triangles_of("sphere").basis)
    assert torch.allclose(middle(upper, ball), tip[:, 0]) and torch.allclose(middle(lower, ball), tip[:, 1])
    assert kn.surfaces_of(model, kn.State(q=q))[0].vertices.dtype == torch.float32


def test_triangles_are_made_once():
    model = swinging()
    one, two = (kn.surfaces_of(model, kn.State(q=torch.full((2,), angle, dtype=F64))) for angle in (0.1, 0.2))
    assert all(a.faces is b.faces and a.points is b.points for a, b in zip(one, two, strict=True))


def test_frames_by_steps_and_by_time():
    model = swinging()
    path = kn.simulate(model, kn.State(torch.ones(4, 2, dtype=F64)), steps=100, dt=2e-3)
    (upper, _) = kn.surfaces_of(path, every=30, dtype=F64)
    assert upper.vertices.shape[:2] == (4, 4)
    expected = kn.surfaces_of(model, path.states[:, [0, 30, 60, 90]], dtype=F64)[0]
    assert torch.equal(upper.vertices, expected.vertices)
    by_time = kn.surfaces_of(path, fps=15, dtype=F64)[0]  # 0, 33.3, 66.7, 100 steps
    expected = kn.surfaces_of(model, path.states[:, [0, 33, 67, 100]], dtype=F64)[0]
    assert torch.equal(by_time.vertices, expected.vertices)
    assert kn.surfaces_of(path)[0].vertices.shape[:2] == (4, 101)
    for wrong, what in (({"every": 0}, "every"), ({"fps": 1000.0}, "fps"), ({"every": 2, "fps": 2.0}, "one of them")):
        with pytest.raises(InputError, match=what):
            kn.surfaces_of(path, **wrong)


def test_a_trajectory_without_its_model_or_states_is_refused(tmp_path: Path):
    model = swinging()
    path = kn.simulate(model, steps=10, dt=2e-3)
    assert path.model is model
    kn.save(tmp_path / "path", path)
    loaded = kn.load(tmp_path / "path")
    with pytest.raises(InputError, match="has no model"):
        kn.surfaces_of(loaded)
    assert torch.equal(kn.surfaces_of(model, loaded.states)[0].vertices, kn.surfaces_of(path)[0].vertices)
    short = kn.simulate(model, steps=10, dt=2e-3, options=kn.RunOptions(checkpoint=5))
    with pytest.raises(InputError, match="only its end"):
        kn.surfaces_of(short)
    with pytest.raises(InputError, match="its own states"):
        kn.surfaces_of(path, path.end)
    with pytest.raises(InputError, match="no time"):
        kn.surfaces_of(model, every=3)


def test_colours_own_from_the_palette_and_given():
    plain, own = swinging(), swinging(colour=(0.1, 0.2, 0.3, 1.0))
    assert kn.surfaces_of(plain)[0].material.colour.tolist() == pytest.approx(PALETTE[0])
    assert kn.surfaces_of(own)[1].material.colour.tolist() == pytest.approx((0.1, 0.2, 0.3))
    red, green = (kn.Material(torch.tensor(c)) for c in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    upper, lower = kn.surfaces_of(plain, materials={"arm": red, "arm/lower": green})
    assert upper.material is red and lower.material is green
    with pytest.raises(InputError, match="nothing is called 'leg'"):
        kn.surfaces_of(plain, materials={"leg": red})


def test_shapes_of_different_colours_on_one_body():
    rod, tip = arm().bodies[0].shapes
    body = replace(
        arm().bodies[0], shapes=(replace(rod, colour=(1.0, 0.0, 0.0, 1.0)), replace(tip, colour=(0.0, 1.0, 0.0, 1.0)))
    )
    scene = kn.Scene()
    scene.add_robot(Robot("arm", (body,)))
    (surface,) = kn.surfaces_of(kn.compile(scene))
    assert surface.material.colour.shape == (len(surface.vertices), 3)
    assert surface.material.colour[0].tolist() == [1.0, 0.0, 0.0] and surface.material.colour[-1].tolist() == [
        0.0,
        1.0,
        0.0,
    ]


def test_what_is_not_visible_is_not_drawn_unless_nothing_is():
    shapes = arm().bodies[0].shapes
    hidden = replace(arm().bodies[0], shapes=(shapes[0], replace(shapes[1], visible=False)))
    scene = kn.Scene()
    scene.add_robot(Robot("some", (hidden,)))
    scene.add_robot(arm(visible=False), "none")
    model = kn.compile(scene)
    assert model.visuals.names == ["some/upper/rod", "none/upper/tip", "none/lower/tip"]  # rods do not collide


URDF = """<robot name="box"><material name="sea"><color rgba="0.1 0.4 0.6 1"/></material>
<link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>
<visual><origin xyz="0 0 0.5"/><geometry><mesh filename="tent.obj" scale="2 2 2"/></geometry><material name="sea"/>
</visual>
<collision><geometry><box size="1 1 1"/></geometry></collision></link></robot>"""
TENT = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def test_visual_meshes_and_colours_of_urdf_files(tmp_path: Path):
    (tmp_path / "tent.obj").write_text(TENT)
    (tmp_path / "box.urdf").write_text(URDF)
    scene = kn.Scene()
    scene.add_robot(tmp_path / "box.urdf", floating=True, pos=(0.0, 0.0, 3.0))
    model = kn.compile(scene)
    (surface,) = kn.surfaces_of(model, dtype=F64)
    assert surface.name == "box/base" and surface.material.colour.tolist() == pytest.approx((0.1, 0.4, 0.6))
    assert len(surface.vertices) == 12 and len(surface.faces) == 4  # four creases
    assert surface.vertices.amin(0).tolist() == pytest.approx([0.0, 0.0, 3.5])
    assert surface.vertices.amax(0).tolist() == pytest.approx([2.0, 2.0, 5.5])
    kn.save(tmp_path / "model", model)
    again = kn.surfaces_of(kn.load(tmp_path / "model"), dtype=F64)[0]
    assert torch.equal(again.vertices, surface.vertices)


def test_terrain_and_ground():
    scene = kn.Scene()
    scene.add_terrain(height_field(np.zeros((3, 4)), 2.0, 2.0), pos=(0.0, 0.0, 0.3))
    scene.add_robot(arm(), pos=(0.0, 0.0, 2.0))
    scene.add_ground(-0.2, exclude=["terrain"])
    model = kn.compile(scene)
    made = {s.name: s for s in kn.surfaces_of(model, dtype=F64)}
    assert [*made] == ["terrain/ground", "arm/upper", "arm/lower", "ground"]
    assert (made["terrain/ground"].vertices[:, 2] == 0.3).all()
    ground = made["ground"]
    assert len(ground.faces) == 2 * TILES**2 and torch.allclose(ground.vertices[:, 2], torch.tensor(-0.2, dtype=F64))
    side = ground.vertices[1] - ground.vertices[0]
    assert side.norm().item() == pytest.approx(1.0)  # 1, 2 or 5 times a power of ten, below 0.4 of 4 m
    wide = kn.surfaces_of(model, ground=0.25, dtype=F64)[-1].vertices
    assert (wide[1] - wide[0]).norm().item() == pytest.approx(0.25)
    assert [s.name for s in kn.surfaces_of(model, ground=False)] == [*made][:-1]


def test_a_plane_on_a_body_moves_with_it():
    """A plane that is part of a robot, a metre above its link, which a joint lifts."""
    lift = Body("lift", None, Pose(), (Joint("up", "prismatic"),), ROD, (Shape("plane", pose=Pose((0.0, 0.0, 1.0))),))
    scene = kn.Scene()
    scene.add_robot(Robot("lift", (lift,)))
    model = kn.compile(scene)
    (plane,) = kn.surfaces_of(model, kn.State(q=torch.tensor([0.5], dtype=F64)), dtype=F64)
    assert (plane.vertices[:, 2] == 1.5).all()


def soft() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(arm())
    scene.add_solid(block((2, 2, 2), 0.1), "cube", pos=(1.0, 0.0, 1.0))
    scene.add_cloth(sheet(0.4, 0.2, squares=(4, 2)), "flag", pos=(0.0, 0.0, 1.0))
    scene.add_particles([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]], "dust", mass=0.1, skin=kn.Skin(radius=0.05))
    scene.attach("flag", [0, 1, 2], "arm/upper")
    return kn.compile(scene)


def test_solids_cloth_and_particles():
    model = soft()
    x = model.initial_state().x
    made = {s.name: s for s in kn.surfaces_of(model, dtype=F64)}
    assert [*made] == ["arm/upper", "arm/lower", "cube", "flag", "dust"]
    cube, flag, dust = made["cube"], made["flag"], made["dust"]
    assert volume(cube.vertices.numpy(), cube.faces.numpy()) == pytest.approx(0.008)
    assert is_closed(cube.points.numpy(), cube.faces.numpy()) and not cube.two_sided
    assert flag.two_sided and len(flag.faces) == 16 and len(flag.vertices) == 15
    ends = dust.vertices.reshape(2, -1, 3)
    assert torch.allclose(ends.mean(1), x[model.matter.particles("dust")])
    assert torch.allclose((ends[0] - ends[0].mean(0)).norm(dim=-1), torch.tensor(0.05, dtype=F64))
    many = kn.surfaces_of(model, kn.State(x=x.expand(5, 3, -1, -1)))
    assert many[2].vertices.shape == (5, 3, len(cube.vertices), 3) and many[0].vertices.ndim == 2


def test_attached_vertices_are_drawn_where_their_body_is():
    model = soft()
    x = model.initial_state().x
    q = torch.tensor([0.4, 0.0], dtype=F64)
    before, after = (
        {s.name: s for s in kn.surfaces_of(model, kn.State(q=angle, x=x), dtype=F64)}["flag"].vertices
        for angle in (0 * q, q)
    )
    where = model.matter.particles("flag").start
    poses = kn.forward_kinematics(model, q)
    expected = poses.position[0] + (x[where] - torch.tensor([0.0, 0.0, 2.0], dtype=F64)) @ poses.rotation[0].T
    moved = (after - before).norm(dim=-1) > 1e-9
    assert moved.sum() == 3 and ((after[moved] - expected).norm(dim=-1) < 1e-12).any()


def test_textures_of_cloth_run_from_corner_to_corner():
    model = soft()
    woven = kn.Material(torch.ones(3), torch.rand(4, 4, 3))
    flag = kn.surfaces_of(model, materials={"flag": woven})[3]
    assert flag.uv.amin(0).tolist() == [0.0, 0.0] and flag.uv.amax(0).tolist() == [1.0, 1.0]
    assert kn.surfaces_of(model)[3].uv is None


def test_shadows_fall_along_the_light_onto_the_ground():
    scene = kn.Scene()
    scene.add_ground(0.5)
    scene.add_robot(arm())
    surfaces = kn.surfaces_of(kn.compile(scene), dtype=F64)
    lights = kn.Lights(directions=torch.tensor([[1.0, 0.0, -2.0]], dtype=F64))
    one, two = shadows_of(surfaces, lights)
    upper = surfaces[0].vertices  # from 1 to 2 m: all above the ground
    side = (surfaces[-1].vertices[1] - surfaces[-1].vertices[0]).norm()
    assert torch.allclose(one.vertices[:, 2], 0.5 + 2e-3 * side)
    assert torch.allclose(one.vertices[:, 0], upper[:, 0] + 0.5 * (upper[:, 2] - 0.5))
    assert torch.allclose(one.vertices[:, 1], upper[:, 1])
    corner = surfaces[-1].vertices[0]
    assert torch.allclose(one.uv, ((one.vertices - corner) / (TILES * side))[:, :2])
    below = surfaces[1].vertices[:, 2] < 0.5  # the tip of the lower one is in the ground
    assert below.any() and torch.allclose(two.vertices[below, :2], surfaces[1].vertices[below, :2])
    assert shadows_of(surfaces[:-1], lights) == []


def test_smoke_stands_upright():
    box = kn.SmokeBox((4, 6), 2.0)
    density = torch.zeros(1, 4, 6)
    density[0, 3, 1] = 1.0  # on the right, second row from below
    path = kn.simulate_smoke(box, density, steps=3, dt=1e-3)
    (quad,) = kn.surfaces_of(path, every=2)
    assert quad.vertices.amax(0).tolist() == [2.0, 0.0, 3.0]
    texture = quad.material.texture
    assert texture.shape == (2, 6, 4, 3)
    bright = (texture[0, ..., 0] > 0.5).nonzero()
    assert bright.tolist() == [[4, 3]]  # rows from the top


def test_wrong_shapes_are_refused():
    model = soft()
    with pytest.raises(InputError, match="q has the wrong shape"):
        kn.surfaces_of(model, kn.State(q=torch.zeros(3, dtype=F64)))
    with pytest.raises(InputError, match="x has the wrong shape"):
        kn.surfaces_of(model, kn.State(x=torch.zeros(3, 3, dtype=F64)))


def test_colours_and_textures_are_tensors_of_values():
    with pytest.raises(InputError, match="(?s)colour of a material has the wrong type.*tuple.*torch.tensor"):
        kn.Material((1.0, 0.0, 0.0))
    with pytest.raises(InputError, match="(?s)texture of a material has the wrong type.*torch.uint8.*0 to 1"):
        kn.Material(torch.ones(3), torch.zeros(4, 4, 3, dtype=torch.uint8))


def test_an_empty_scene_has_nothing_to_draw():
    with pytest.raises(InputError, match="there is no surface to draw"):
        kn.render(kn.compile(kn.Scene()))


def test_a_mesh_with_a_loose_face_can_be_drawn():
    """Open meshes have edges with one face."""
    mesh = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.1]]), np.array([[0, 1, 2], [1, 3, 2]]))
    made = triangles_of("mesh", mesh)
    assert len(made.basis) == 4 and np.allclose(made.basis @ np.ones(3), mesh.vertices[made.points])
