"""Surfaces of everything in a scene, placed by its kinematics: bodies with their shapes, soft matter, the ground.

A model's triangles are built once; each call places them. The tensors of faces stay the same from call to call, so that
the renderer recognises what it has drawn before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.matter import MatterArrays
from kinema.model.model import Model
from kinema.model.state import State
from kinema.model.visuals import WORLD_BODY, palette
from kinema.rendering.ground import GroundPlan, plan_ground
from kinema.rendering.surface import Material, Surface
from kinema.rendering.triangles import SIDES, Triangles, small_ball, split_creases, triangles_of
from kinema.scene.description import PLANE
from kinema.scene.shapes.block import surface as outside
from kinema.simulation.robot_dynamics import BodyPoses, forward_kinematics

OF_SHAPES, RADIUS = ("size", "centre"), "skin_radius"
GEOMETRY = frozenset(("offset", "axis", *OF_SHAPES, RADIUS))  # names of the parameters that affect images
SHINE = 0.06  # specular share of default materials
PARTICLE = 0.02  # radius of particles without a skin, relative to the extent of all of them


@dataclass(eq=False)
class _Part:
    """The surface of a body: all its shapes together.

    Attributes:
        name: "robot/body".
        body: Index of the body.
        shapes: Triangles of each shape, and its index among the visuals.
        vertices: In the body's frame [m].
        faces, points: See `Surface`.
        colour: Linear RGB, shape (3,) or (vertices, 3).
    """

    name: str
    body: int
    shapes: list[tuple[Triangles, int]]
    vertices: Tensor
    faces: Tensor
    points: Tensor
    colour: Tensor


@dataclass(eq=False)
class _Soft:
    """The surface of soft matter: the particle of each vertex.

    For bare particles, `ball` has the vertices of unit balls around them; the skin with the index `skin`, if there is
    one, gives their radius [m].
    """

    name: str
    particle: Tensor
    faces: Tensor
    points: Tensor
    colour: Tensor
    uv: Tensor | None = None
    two_sided: bool = False
    ball: Tensor | None = None
    radius: float = 0.0
    skin: int | None = None


@dataclass(eq=False)
class _Plan:
    """Triangles of a model."""

    parts: list[_Part]
    soft: list[_Soft]
    planes: list[tuple[int, GroundPlan]]
    pin_body: Tensor
    pin_place: Tensor


_PLANS: WeakKeyDictionary[Model, dict[int, _Plan]] = WeakKeyDictionary()  # by the number of sides of circles


def model_surfaces(
    model: Model,
    state: State | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    materials: Mapping[str, Material] | None = None,
    ground: bool | float = True,
    dtype: torch.dtype = torch.float32,
    sides: int = SIDES,
) -> list[Surface]:
    """Surfaces of all bodies, soft matter and planes of a model, in this order; see `surfaces_of`."""
    plans = _PLANS.setdefault(model, {})
    plan = plans.get(sides)
    if plan is None:
        plan = plans[sides] = _plan(model, sides)
    q, x = _coordinates(model, state)
    _check_materials(plan, materials or {})
    poses = None
    if model.nv and (plan.parts or plan.planes or len(plan.pin_body)):
        poses = forward_kinematics(model, q, params)
    changed = {name_of(path) for path in params or {}}
    numbers = model.resolve(params) if changed & {*OF_SHAPES, RADIUS} else {}
    made = []
    for part in plan.parts:
        rest = _resized(model, part, numbers) if changed & {*OF_SHAPES} else part.vertices
        moves = int(model.tree.body_link[part.body]) > 0
        if moves and poses is not None:
            R, p = poses.rotation[..., part.body, :, :], poses.position[..., part.body, :]
        else:
            R, p = (torch.as_tensor(a[part.body]) for a in (model.tree.body_rotation, model.tree.body_offset))
        vertices = _placed(rest, R, p).to(dtype)
        material = _material(part.name, part.colour, materials, dtype)
        made.append(Surface(vertices, part.faces, material, name=part.name, points=part.points))
    if plan.soft:
        if poses is not None and len(plan.pin_body):
            x = _pinned(model, plan, x, poses.rotation, poses.position)
        radii = numbers[RADIUS] if RADIUS in changed else None
        made += [_soft_surface(one, x.to(dtype), materials, dtype, radii) for one in plan.soft]
    if ground is not False:
        for number, flat in plan.planes:
            R, p = _plane_pose(model, number, poses)
            made.append(flat.surface(R, p, None if ground is True else float(ground), dtype))
    return made


def name_of(path: str) -> str:
    """The name of the array that a parameter belongs to."""
    return str(path).rpartition("/")[2]


def _coordinates(model: Model, state: State | None) -> tuple[Tensor, Tensor]:
    """Joint coordinates and positions of particles; omitted ones are those of the model's initial state."""
    if state is not None and not isinstance(state, State):
        fix = "kinema.State(q=..., x=...)" if isinstance(state, Tensor) else "model.initial_state()"
        raise InputError("the state has the wrong type", got=type(state).__name__, expected="a State", fix=fix)
    nothing = {"q": torch.zeros(0, dtype=model.dtype), "x": torch.zeros(0, 3, dtype=model.dtype)}
    found = nothing | model.initial_state().tensors | (state.tensors if state is not None else {})
    q, x = found["q"], found["x"]
    model.check_tensor("q", q, model.nq)
    if x.shape[-2:] != (len(model.matter), 3):
        expected = f"(*batch, {len(model.matter)}, 3)"
        raise InputError("x has the wrong shape", got=tuple(x.shape), expected=expected)
    return q, x


def _placed(vertices: Tensor, R: Tensor, p: Tensor) -> Tensor:
    return vertices @ R.to(vertices.dtype).transpose(-1, -2) + p.to(vertices.dtype).unsqueeze(-2)


def _plane_pose(model: Model, number: int, poses: BodyPoses | None) -> tuple[Tensor, Tensor]:
    """Pose in the world of a plane among the visuals."""
    visuals, tree = model.visuals, model.tree
    R, p = torch.as_tensor(visuals.rotation[number]), torch.as_tensor(visuals.offset[number])
    body = int(visuals.body[number])
    if body == WORLD_BODY:
        return R, p
    if poses is not None and int(tree.body_link[body]) > 0:
        turn, place = poses.rotation[..., body, :, :], poses.position[..., body, :]
    else:
        turn, place = torch.as_tensor(tree.body_rotation[body]), torch.as_tensor(tree.body_offset[body])
    return turn @ R.to(turn.dtype), place + (turn @ p.to(turn.dtype).unsqueeze(-1)).squeeze(-1)


def _resized(model: Model, part: _Part, numbers: dict[str, Tensor]) -> Tensor:
    """Vertices in the body's frame, with sizes and positions of colliding shapes from the parameters."""
    visuals, tree = model.visuals, model.tree
    R, p = (torch.as_tensor(a[part.body], dtype=model.dtype) for a in (tree.body_rotation, tree.body_offset))
    pieces = []
    for triangles, number in part.shapes:
        size, offset = (torch.as_tensor(a[number], dtype=model.dtype) for a in (visuals.size, visuals.offset))
        shape = int(visuals.shape[number])
        if shape >= 0:
            size = numbers["size"][..., shape, :]
            offset = (numbers["centre"][..., shape, :] - p) @ R  # from the link's frame to the body's
        basis = torch.as_tensor(triangles.basis, dtype=model.dtype)
        turn = torch.as_tensor(visuals.rotation[number], dtype=model.dtype)
        pieces.append(_placed((basis @ size[..., None, :, None]).squeeze(-1), turn, offset))
    batch = torch.broadcast_shapes(*(piece.shape[:-2] for piece in pieces))
    return torch.cat([piece.expand(*batch, *piece.shape[-2:]) for piece in pieces], -2)


def _pinned(model: Model, plan: _Plan, x: Tensor, R: Tensor, p: Tensor) -> Tensor:
    """Particles, with pinned ones moved to their bodies."""
    at = torch.as_tensor(model.matter.pins.particle.astype(np.int64))
    turn, place = R.index_select(-3, plan.pin_body), p.index_select(-2, plan.pin_body)
    held = place + (turn @ plan.pin_place.to(turn.dtype).unsqueeze(-1)).squeeze(-1)
    batch = torch.broadcast_shapes(x.shape[:-2], held.shape[:-2])
    return x.expand(*batch, *x.shape[-2:]).index_copy(-2, at, held.to(x.dtype).expand(*batch, *held.shape[-2:]))


def _soft_surface(
    one: _Soft, x: Tensor, materials: Mapping[str, Material] | None, dtype: torch.dtype, radii: Tensor | None
) -> Surface:
    """The surface of soft matter; `radii` replace the radii of all skins."""
    vertices = x.index_select(-2, one.particle)
    if one.ball is not None:
        radius = torch.tensor(one.radius, dtype=torch.float64)
        if radii is not None and one.skin is not None:
            radius = radii[..., one.skin, None, None]
        vertices = vertices + (radius * one.ball.to(radius.dtype)).to(dtype)
    material = _material(one.name, one.colour, materials, dtype)
    uv = None if one.uv is None or material.texture is None else one.uv.to(dtype)
    return Surface(vertices, one.faces, material, uv, True, one.two_sided, one.name, one.points)


def _material(name: str, colour: Tensor, materials: Mapping[str, Material] | None, dtype: torch.dtype) -> Material:
    """The material given for an object or its robot; otherwise one of its own colour."""
    for key in (name, name.partition("/")[0]):
        if materials and key in materials:
            return materials[key]
    return Material(colour.to(dtype), specular=SHINE)


def _check_materials(plan: _Plan, materials: Mapping[str, Material]) -> None:
    known = [part.name for part in plan.parts] + [one.name for one in plan.soft]
    known += [name.partition("/")[0] for name in known]
    for name in materials:
        if name not in known:
            raise InputError(
                f"nothing is called {name!r}", expected=", ".join(dict.fromkeys(known)) or "an empty scene"
            )


# -- once for a model -------------------------------------------------------------------------------------------------


def _plan(model: Model, sides: int) -> _Plan:
    visuals = model.visuals
    of_body: dict[int, list[int]] = {}
    planes = []
    for number, kind in enumerate(visuals.kind):
        if kind == PLANE:
            planes.append(number)
        else:
            of_body.setdefault(int(visuals.body[number]), []).append(number)
    parts = [_part(model, body, numbers, sides) for body, numbers in of_body.items()]
    R, p = model.tree.initial_poses()
    seen = [model.matter.x]
    for part in parts:
        link = int(model.tree.body_link[part.body])
        inside = part.vertices.numpy() @ model.tree.body_rotation[part.body].T + model.tree.body_offset[part.body]
        seen.append(inside @ R[link].T + p[link])
    flat = plan_ground(np.concatenate(seen))
    return _Plan(parts, _soft_parts(model), [(number, flat) for number in planes], *_pins(model))


def _part(model: Model, body: int, numbers: Sequence[int], sides: int) -> _Part:
    visuals = model.visuals
    shapes = [(triangles_of(visuals.kind[n], visuals.meshes[n], sides), n) for n in numbers]
    vertices, faces, points, colours = [], [], [], []
    count = 0
    for triangles, n in shapes:
        vertices.append(triangles.basis @ visuals.size[n] @ visuals.rotation[n].T + visuals.offset[n])
        faces.append(triangles.faces + count)
        points.append(triangles.points + count)
        colours.append(np.broadcast_to(visuals.colour[n], (len(triangles.basis), 3)))
        count += len(triangles.basis)
    colour = np.concatenate(colours)
    if (colour == colour[0]).all():
        colour = colour[0]
    name = "/".join(visuals.names[numbers[0]].split("/")[:2])
    return _Part(
        name,
        body,
        shapes,
        torch.tensor(np.concatenate(vertices), dtype=model.dtype),
        torch.tensor(np.concatenate(faces), dtype=torch.int32),
        torch.tensor(np.concatenate(points), dtype=torch.int32),
        torch.tensor(colour),
    )


def _soft_parts(model: Model) -> list[_Soft]:
    matter = model.matter
    tets = [one.mesh.tets for one in matter.solids]
    sheets = np.zeros((0, 3), int) if matter.cloth is None else matter.cloth.mesh.triangles
    robots = len({name.partition("/")[0] for name in model.bodies})
    skins = matter.owners.get(RADIUS, [])
    made = []
    for k, name in enumerate(matter.names):
        colour = torch.tensor(palette(robots + k))
        own = np.concatenate([np.zeros((0, 4), int), *(t[matter.owner[t[:, 0]] == k] for t in tets)])
        cloth = sheets[matter.owner[sheets[:, 0]] == k]
        if len(own) or len(cloth):
            faces = outside(own) if len(own) else cloth
            source, split = split_creases(matter.x, faces)
            uv = None if len(own) else torch.tensor(_flat(matter.x[source]))
            particle = _integers(source)
            made.append(_Soft(name, particle, _integers(split), particle, colour, uv, not len(own)))
        else:
            skin = skins.index(name) if name in skins else None
            made.append(_particles(name, np.flatnonzero(matter.owner == k), matter, skin, colour))
    return made


def _particles(name: str, own: np.ndarray, matter: MatterArrays, skin: int | None, colour: Tensor) -> _Soft:
    unit, faces = small_ball()
    radius = float(matter.numbers[RADIUS][skin]) if skin is not None else 0.0
    if not radius > 0:
        extent = float(np.ptp(matter.x[own], axis=0).max())
        radius = PARTICLE * (extent or 1.0)
    ball = torch.tensor(np.tile(unit, (len(own), 1)))
    all_faces = (faces + len(unit) * np.arange(len(own))[:, None, None]).reshape(-1, 3)
    drawn = _integers(np.repeat(own, len(unit))), _integers(all_faces), _integers(np.arange(len(ball)))
    return _Soft(name, *drawn, colour, ball=ball, radius=radius, skin=skin)


def _flat(x: np.ndarray) -> np.ndarray:
    """Texture coordinates: along the two longest sides of the bounding box of all vertices in the initial state."""
    low, high = x.min(0), x.max(0)
    first, second = sorted(np.argsort(high - low)[1:])
    return np.stack([(x[:, a] - low[a]) / max(high[a] - low[a], 1e-300) for a in (first, second)], 1)


def _pins(model: Model) -> tuple[Tensor, Tensor]:
    """For pinned particles: a body of the link, and positions in its frame [m]."""
    pins, tree = model.matter.pins, model.tree
    bodies = np.array([int(np.flatnonzero(tree.body_link == link)[0]) for link in pins.link], np.int64)
    if not len(bodies):
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3)
    place = np.einsum("nji,nj->ni", tree.body_rotation[bodies], pins.place - tree.body_offset[bodies])
    return torch.as_tensor(bodies), torch.as_tensor(place)


def _integers(array: np.ndarray) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.int32)
