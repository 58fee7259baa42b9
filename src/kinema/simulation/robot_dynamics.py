"""Standard algorithms of robot dynamics, differentiable, for one world or a batch.

Velocities, forces and accelerations of free and ball joints refer to their link and are in the link's own axes, angular
part first. Spatial quantities are returned in world axes, angular part first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kinema.dynamics.report import total_momentum
from kinema.dynamics.rnea_crba import add_scaled, dense_matrix
from kinema.errors import InputError
from kinema.lang import Float
from kinema.lang.autograd.options import QUIET
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import PARAMETER, Program, Ref
from kinema.math import Force
from kinema.model.model import Model, expect_model
from kinema.simulation import tree_dynamics
from kinema.simulation.links import Links, TreeTables, report_poses

Params = Mapping[str, Tensor]


@dataclass(frozen=True)
class BodyPoses:
    """Poses of bodies in the world: position [m], shape (*batch, bodies, 3); rotation R_WB, (*batch, bodies, 3, 3)."""

    position: Tensor
    rotation: Tensor


def forward_kinematics(model: Model, q: Tensor, params: Params | None = None) -> BodyPoses:
    """Poses of all bodies, in the order of `model.bodies`.

    Args:
        model: The model.
        q: Coordinates, shape (*batch, nq).
        params: Parameter values that replace the model's own, see `Model.parameters`.

    Gradients:
        Exact, to q (quaternions are normalised first: gradients along them are zero) and to joint offsets and axes.
    """
    return _body_poses(model, _links(model, q, params))


def body_jacobian(model: Model, q: Tensor, body: str, params: Params | None = None) -> Tensor:
    """The Jacobian of a body, shape (*batch, 6, nv): J v is its angular velocity and the velocity of its origin.

    Gradients:
        Exact, to q and to the joints' offsets and axes.
    """
    if body not in model.bodies:
        raise InputError(f"the model has no body {body!r}", expected=", ".join(model.bodies) or "an empty scene")
    at, tree = model.bodies.index(body), model.tree
    link = int(tree.body_link[at])
    found = _links(model, q, params)
    angular, linear = found["motions"].split(3, -1)
    if link == 0:
        return torch.zeros_like(found["motions"]).transpose(-1, -2)
    origin = found["positions"][..., int(tree.root[link - 1]), :]
    arm = _body_poses(model, found).position[..., at, :] - origin
    linear = linear + torch.linalg.cross(angular, arm.unsqueeze(-2).expand_as(angular))
    last = int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1)
    moving = torch.zeros(model.nv, 1, dtype=torch.bool)
    moving[tree.above[tree.row[last] : tree.row[last] + tree.depth[last] + 1].tolist()] = True
    whole = torch.cat([angular, linear], -1)
    return torch.where(moving, whole, torch.zeros_like(whole)).transpose(-1, -2)


def centre_of_mass(model: Model, q: Tensor, params: Params | None = None) -> Tensor:
    """Centre of mass of all moving bodies [m], shape (*batch, 3).

    Gradients:
        Exact, to q, offsets, axes, masses and centres of mass.
    """
    mass, centres = _centres(model, q, params)
    return (mass.unsqueeze(-1) * centres).sum(-2) / mass.sum(-1, keepdim=True)


def momentum(model: Model, q: Tensor, v: Tensor, about: Tensor | None = None, params: Params | None = None) -> Tensor:
    """Momentum of all bodies in world axes, shape (*batch, 6): angular [kg m^2/s], then linear [kg m/s].

    It does not include the inertia of drives (armature).

    Args:
        model: The model.
        q: Coordinates, shape (*batch, nq).
        v: Velocities, shape (*batch, nv).
        about: Reference point of the angular momentum [m], shape (*batch, 3); the centre of mass by default.
        params: Parameter values that replace the model's own, see `Model.parameters`.

    Gradients:
        Exact, to q, v, the point, offsets, axes, masses, centres of mass and inertias.
    """

    def build(p: Program, tables: TreeTables) -> None:
        v, point = p.parameter("v", Float, model.nv), p.parameter("about", Float, 3)
        links = Links(p, tables, p.parameter("q", Float, model.nq), v)
        p.call(total_momentum, links.tree, links.inertia, links.V, links.p, point, p.output("out", Force, 1))

    point = centre_of_mass(model, q, params) if about is None else about
    return _evaluate(model, "momentum", build, {"q": q, "v": v, "about": point}, params)["out"].squeeze(-2)


def potential_energy(model: Model, q: Tensor, params: Params | None = None) -> Tensor:
    """Gravitational energy, -m g.c over all moving bodies [J], shape (*batch,), without the energy of springs.

    Gradients:
        Exact, to q, offsets, axes, masses, centres of mass and gravity.
    """
    mass, centres = _centres(model, q, params)
    gravity = model.resolve(params)["gravity"]
    return -(mass * (centres * gravity.unsqueeze(-2)).sum(-1)).sum(-1)


def kinetic_energy(model: Model, q: Tensor, v: Tensor, params: Params | None = None) -> Tensor:
    """v.M(q) v / 2 [J], shape (*batch,); including the inertia of drives.

    Gradients:
        Exact, to q, v and every geometric and inertial parameter.
    """
    model.check_tensor("v", v, model.nv)
    return 0.5 * (v * (mass_matrix(model, q, params) @ v.unsqueeze(-1)).squeeze(-1)).sum(-1)


def mass_matrix(model: Model, q: Tensor, params: Params | None = None) -> Tensor:
    """The mass matrix M(q), including the inertia of drives, shape (*batch, nv, nv) [kg m^2, kg m, kg].

    Gradients:
        Exact, to q and every geometric and inertial parameter.
    """

    def build(p: Program, tables: TreeTables) -> None:
        links = Links(p, tables, p.parameter("q", Float, model.nq))
        M = tree_dynamics.mass_matrix(links, links.armature)
        p.call(dense_matrix, links.branches, M, p.output("out", Float, model.nv**2))

    return _evaluate(model, "mass_matrix", build, {"q": q}, params)["out"].unflatten(-1, (model.nv, model.nv))


def inverse_dynamics(model: Model, q: Tensor, v: Tensor, acceleration: Tensor, params: Params | None = None) -> Tensor:
    """Generalised forces tau = M(q) a + bias(q, v) of a given acceleration, shape (*batch, nv) [N m, N].

    The bias consists of Coriolis, centrifugal and gyroscopic forces and gravity. It does not include springs, dampers
    and friction of the joints; M includes the inertia of their drives.

    Gradients:
        Exact, to q, v, acceleration, gravity and every geometric and inertial parameter.
    """

    def build(p: Program, tables: TreeTables) -> None:
        v, a, tau = (_numbers(p, kind, name, model.nv) for kind, name in (("in", "v"), ("in", "a"), ("", "tau")))
        links = Links(p, tables, p.parameter("q", Float, model.nq), v)
        tree_dynamics.inverse_dynamics(links, a, tau)
        p.call(add_scaled, tau, links.armature, a, p.output("out", Float, model.nv))

    return _evaluate(model, "inverse_dynamics", build, {"q": q, "v": v, "a": acceleration}, params)["out"]


def forward_dynamics(model: Model, q: Tensor, v: Tensor, tau: Tensor, params: Params | None = None) -> Tensor:
    """Generalised accelerations M(q)^-1 (tau - bias(q, v)), shape (*batch, nv) [rad/s^2, m/s^2].

    The inverse of `inverse_dynamics`: it does not include springs, dampers and friction of the joints.

    Gradients:
        Exact, to q, v, tau, gravity and every geometric and inertial parameter.
    """

    def build(p: Program, tables: TreeTables) -> None:
        v, tau = _numbers(p, "in", "v", model.nv), _numbers(p, "in", "tau", model.nv)
        net, found = (_numbers(p, "", name, model.nv) for name in ("net", "found"))
        zero, minus = (p.constant(name, Float, [x] * model.nv) for name, x in (("zero", 0.0), ("minus", -1.0)))
        links = Links(p, tables, p.parameter("q", Float, model.nq), v)
        bias = tree_dynamics.bias(links, zero, articulated=tree_dynamics.articulated_pays(model.tree))
        p.call(add_scaled, tau, minus, bias.force, net)
        tree_dynamics.accelerate(links, net, links.armature, found, of=bias)
        p.call(add_scaled, found, zero, zero, p.output("out", Float, model.nv))

    return _evaluate(model, "forward_dynamics", build, {"q": q, "v": v, "tau": tau}, params)["out"]


# -- programs of one step ------------------------------------------------------------------------------------------

_PROGRAMS: WeakKeyDictionary[Model, dict[str, Program]] = WeakKeyDictionary()


def _numbers(p: Program, kind: str, name: str, count: int) -> Ref:
    return p.parameter(name, Float, count) if kind == "in" else p.scratch(name, Float, count)


def _evaluate(
    model: Model,
    name: str,
    build: Callable[[Program, TreeTables], None],
    inputs: Mapping[str, Tensor],
    params: Params | None,
) -> dict[str, Tensor]:
    """Outputs of a program, run for one step; the program is built at the first call for a model."""
    expect_model(model)
    known = _PROGRAMS.setdefault(model, {})
    if name not in known:
        program = Program(name)
        build(program, TreeTables(program, model.tree))
        known[name] = program
    program = known[name]
    for given, tensor in inputs.items():
        model.check_tensor(given, tensor, program.buffers[given].length)
    wanted = {name for name, buffer in program.buffers.items() if buffer.kind == PARAMETER}
    arrays = {n: a for n, a in model.resolve(params).items() if n in wanted}
    outputs = [b.name for b in program.buffers.values() if b.kind == "output"]
    found = rollout(program, 1, {}, {**inputs, **arrays}, record=outputs, options=QUIET).outputs
    model.check_quaternions(inputs["q"])  # now that the rollout has accepted the tensor
    return {n: t.squeeze(-1 - len(program.buffers[n].shape)) for n, t in found.items()}


def _links(model: Model, q: Tensor, params: Params | None) -> dict[str, Tensor]:
    """Poses of links and motion subspaces of degrees of freedom."""
    return _evaluate(model, "links", report_poses, {"q": q}, params)


def _body_poses(model: Model, links: dict[str, Tensor]) -> BodyPoses:
    tree = model.tree
    at = tree.body_link.tolist()
    R, p = links["rotations"][..., at, :, :], links["positions"][..., at, :]
    offset, rotation = (torch.tensor(a, dtype=model.dtype) for a in (tree.body_offset, tree.body_rotation))
    return BodyPoses(p + (R @ offset.unsqueeze(-1)).squeeze(-1), R @ rotation)


def _centres(model: Model, q: Tensor, params: Params | None) -> tuple[Tensor, Tensor]:
    """Masses of all moving bodies, and their centres of mass in the world."""
    poses, arrays = forward_kinematics(model, q, params), model.resolve(params)
    centres = poses.position + (poses.rotation @ arrays["com"].unsqueeze(-1)).squeeze(-1)
    moving = torch.tensor(model.tree.body_link > 0)
    return arrays["mass"][..., moving], centres[..., moving, :]
