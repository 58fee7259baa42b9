"""One step of a scene as a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.contact.compliant import Ends, link_contact
from kinema.contact.shapes import Touch
from kinema.dynamics.actuators import Actuators, actuate
from kinema.dynamics.joints import Loaded, Springs, apply_wrenches, net_forces
from kinema.dynamics.report import report_bodies
from kinema.integrate.joints import advance_coordinates, advance_velocities
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.program import Program, Ref
from kinema.math import Force, Motion
from kinema.model.model import Model
from kinema.scene.scene import COMPLIANT
from kinema.simulation.articulated import TreeProgram
from kinema.simulation.constraints import ConstraintProgram
from kinema.simulation.detection import detect, record_touch

RECORDS = ("impulse", "limit_impulse", "gap", "point", "normal", "position", "rotation", "velocity", "iterations")


def step_program(model: Model, loaded: Sequence[str] = (), record: Sequence[str] = (), name: str = "step") -> Program:
    """One step: semi-implicit Euler, implicit in springs, dampers and servos, with impulses of all constraints.

    Args:
        model: The model.
        loaded: Names of bodies that wrenches act on.
        record: Outputs, of RECORDS.
        name: Name of the program.

    Returns:
        A program with the state q, v; the controls tau (a force per degree of freedom [N m, N]), u (of the actuators,
        if there are any) and wrench (moment and force on each loaded body [N m, N]); the parameters that
        `Model.resolve` gives and dt, all differentiable; the output residual [N s] where there are constraints, and
        record_... for what is recorded.
    """
    p, tree = Program(name), model.tree
    parts = TreeProgram(p, tree)
    q, v = p.state("q", Float, tree.nq), p.state("v", Float, tree.nv)
    tau, dt = p.control("tau", Float, tree.nv), p.parameter("dt", Float)
    springs = Springs(
        coordinate=p.constant("coordinate", Int, tree.spring_coordinates()),
        **{n: p.parameter(n, Float, tree.nv) for n in ("stiffness", "rest", "damping")},
    )
    bias, net, diagonal, a = (p.scratch(n, Float, tree.nv) for n in ("bias", "net", "diagonal", "a"))
    M = p.scratch("M", Float, len(tree.above))
    zero = p.constant("zero", Float, [0.0] * tree.nv)

    parts.kinematics(q)
    parts.inertias()
    parts.inverse_dynamics(v, zero, bias)
    drive, resist, soft = _drives(parts, model, loaded, q, v, dt, zero)
    p.call(net_forces, springs, tau, drive, resist, bias, q, v, parts.armature, dt, net, diagonal)
    parts.mass_matrix(M, diagonal)
    parts.factorise(M)
    parts.solve(net, a)
    v_free = p.scratch("v_free", Float, tree.nv)
    p.call(advance_velocities, parts.tree, v, a, dt, v_free)
    constraints = ConstraintProgram(parts, model, dt)
    v_end = constraints.velocities(q, v, v_free)
    p.call(advance_coordinates, parts.tree, q, v_end, dt, q.next, v.next)
    constraints.record(record)
    record_touch(p, soft or constraints.touch, len(model.candidates), record)
    _record_bodies(parts, model, record)
    return p


def _record_bodies(parts: TreeProgram, model: Model, record: Sequence[str]) -> None:
    p, n = parts.program, len(model.bodies)
    if not {"position", "rotation", "velocity"} & set(record):
        return
    names, elements = ("position", "rotation", "velocity"), (vec3, mat33, Motion)
    outs = [
        (p.output if name in record else p.scratch)(f"record_{name}", element, n)
        for name, element in zip(names, elements, strict=True)
    ]
    p.call(report_bodies, parts.tree, parts.bodies, parts.R, parts.p, parts.V, *outs)


def _drives(
    parts: TreeProgram, model: Model, loaded: Sequence[str], q: Ref, v: Ref, dt: Ref, zero: Ref
) -> tuple[Ref, Ref, Touch | None]:
    """Forces of actuators, wrenches and compliant contacts, what actuators add to M, and where the contacts are."""
    p, tree, actuators = parts.program, model.tree, model.actuators
    soft = model.contact.law == COMPLIANT and len(model.candidates) > 0
    if not len(actuators) and not loaded and not soft:
        return zero, zero, None
    drive, resist = p.scratch("drive", Float, tree.nv), zero
    if len(actuators):
        resist = p.scratch("resist", Float, tree.nv)
        n = len(actuators)
        table = Actuators(
            **{k: p.constant(f"actuator_{k}", Int, getattr(actuators, k)) for k in ("dof", "q", "kind")},
            **{k: p.parameter(k, Float, n) for k in ("gear", "kp", "kd", "force")},
            **{k: p.constant(f"control_{k}", Float, getattr(actuators, k)) for k in ("lower", "upper")},
        )
        p.call(actuate, table, p.control("u", Float, n), q, v, dt, drive, resist)
    if loaded:
        at = [tree.bodies.index(name) for name in loaded]
        links = tree.body_link[at]
        bodies = Loaded(
            link=p.constant("loaded_link", Int, links),
            last=p.constant("loaded_last", Int, tree.v_start[links - 1] + tree.dofs[links - 1] - 1),
            offset=p.constant("loaded_offset", vec3, np.asarray(tree.body_offset)[at]),
        )
        wrench = p.control("wrench", Force, len(loaded))
        p.call(apply_wrenches, parts.tree, parts.branches, bodies, wrench, parts.R, parts.p, parts.S, drive)
    return drive, resist, _compliant_contact(parts, model, drive) if soft else None


def _compliant_contact(parts: TreeProgram, model: Model, drive: Ref) -> Touch:
    p, tree, candidates = parts.program, model.tree, model.candidates
    touch = detect(parts, model, p.constant("contact_margin", Float, model.contact.margin))
    last = np.concatenate([[-1], tree.v_start + tree.dofs - 1])  # of each link
    ends = Ends(
        first=p.constant("end_first", Int, candidates.first),
        second=p.constant("end_second", Int, candidates.second),
        first_last=p.constant("end_first_last", Int, last[candidates.first]),
        second_last=p.constant("end_second_last", Int, last[candidates.second]),
    )
    law = (p.parameter(f"contact/{n}", Float) for n in ("k_e", "k_d", "k_f"))
    friction = p.parameter("friction", Float, len(candidates))
    p.call(link_contact, parts.tree, parts.branches, ends, touch, *law, friction, parts.p, parts.S, parts.V, drive)
    return touch
