"""Applied forces in step programs: actuators, wrenches, user force laws and compliant contacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.compliant import Ends, LinkLaw, link_contact
from kinema.dynamics.actuators import Actuators, actuate, resist_by_servos
from kinema.dynamics.drag import Drags, drag_bodies
from kinema.dynamics.gravity_compensation import compensate_gravity
from kinema.dynamics.joints import Loaded, apply_wrenches, push_joints
from kinema.dynamics.transmissions import pick
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force
from kinema.model.actuators import ActuatorArrays
from kinema.model.arrays import SceneArrays
from kinema.simulation.activations import signals
from kinema.simulation.links import Links
from kinema.simulation.transmissions import Pulls, pull_transmissions
from kinema.simulation.user_forces import acts_on_links, push_by_laws


@dataclass
class AppliedForces:
    """Applied forces on the joints.

    Attributes:
        force: Generalised forces [N m, N].
        resist: The actuators' contribution to the diagonal of the mass matrix.
        loaded: Bodies with wrenches, and the wrenches.
        soft: Compliant contacts: the links of each candidate, the contact points, and the law.
        felt: Wrench of soft matter on every link.
        own: Wrench of user force laws on every link.
        passive: Wrench of gravity compensation and drag on every link.
        driven: The table of actuators, and their controls.
        pulls: What acts along transmissions.
    """

    force: Ref
    resist: Ref
    loaded: tuple[Loaded, Ref] | None = None
    soft: tuple[Any, ...] | None = None
    felt: Ref | None = None
    own: Ref | None = None
    passive: Ref | None = None
    driven: tuple[Any, Ref] | None = None
    pulls: Pulls | None = None


def apply_forces(
    links: Links,
    model: SceneArrays,
    loaded: Sequence[str],
    dt: Ref,
    zero: Ref,
    touch: Touch | None,
    felt: Ref | None,
    time: Ref | None,
) -> AppliedForces:
    """Forces of actuators, wrenches, user force laws, compliant contacts and soft matter on the joints.

    Args:
        links: Links at a state.
        model: The model.
        loaded: Names of bodies with wrenches.
        dt: Time at the end of which servo forces are evaluated [s]; 0 makes them explicit.
        zero: Zeros, one per degree of freedom.
        touch: Contact candidates.
        felt: Wrench of soft matter on every link.
        time: Time for user force laws; None if no law reads it.
    """
    p, tree, actuators = links.program, model.tree, model.actuators
    soft = not model.contact.hard and len(model.candidates) > 0
    own = acts_on_links(model)
    pulled = model.transmissions.acting
    light = bool(tree.gravcomp.any() or len(tree.dragged))
    if not (len(actuators) or pulled or light or loaded or own or soft) and felt is None:
        return AppliedForces(zero, zero)
    found = AppliedForces(p.scratch("drive", Float, tree.nv), zero, felt=felt)
    if len(actuators) or pulled:
        found.resist = p.scratch("resist", Float, tree.nv)
    given = _inputs_of(actuators, p)
    if len(actuators.on_joints):
        _actuate(links, actuators, given, dt, found)
    if pulled:
        scaled = {**given, "control": signals(links, model, given["control"])} if given else given
        found.pulls = pull_transmissions(links, model, scaled, dt, found.force, found.resist)
    if light:
        found.passive = _passive_wrenches(links)
        p.call(push_joints, links.tree, links.S, found.passive, found.force)
    if loaded:
        at = [tree.bodies.index(name) for name in loaded]
        carried = tree.body_link[at]
        bodies = Loaded(
            link=p.constant("loaded_link", Int, carried),
            last=p.constant("loaded_last", Int, tree.v_start[carried - 1] + tree.dofs[carried - 1] - 1),
            offset=p.constant("loaded_offset", vec3, np.asarray(tree.body_offset)[at]),
        )
        wrench = p.control("wrench", Force, len(loaded))
        p.call(apply_wrenches, links.tree, links.branches, bodies, wrench, links.R, links.p, links.S, found.force)
        found.loaded = bodies, wrench
    if own:
        found.own = push_by_laws(links, model, time, found.force)
    if soft:
        assert touch is not None
        found.soft = _compliant_contact(links, model, touch, found.force)
    if felt is not None:
        p.call(push_joints, links.tree, links.S, felt, found.force)
    return found


def _passive_wrenches(links: Links) -> Ref:
    """The wrench of gravity compensation and drag on every link."""
    p, tree = links.program, links.arrays
    push, where = p.scratch("passive", Force, len(tree.parent) + 1), (links.R, links.p)
    if tree.gravcomp.any():
        share = p.parameter("gravcomp", Float, len(tree.bodies))
        p.call(compensate_gravity, links.tree, links.bodies, share, links.gravity, *where, push)
    if len(tree.dragged):
        count = len(tree.dragged)
        drags = Drags(
            body=p.constant("dragged", Int, tree.dragged),
            box=p.constant("drag_box", vec3, tree.drag_box),
            rotation=p.constant("drag_rotation", mat33, tree.drag_rotation),
            wind=p.constant("drag_wind", vec3, tree.wind),
            density=p.parameter("fluid_density", Float, count),
            viscosity=p.parameter("fluid_viscosity", Float, count),
        )
        p.call(drag_bodies, links.tree, links.bodies, drags, *where, links.V, push)
    return push


def _inputs_of(actuators: ActuatorArrays, p: Builder) -> dict[str, Ref]:
    """Controls and parameters of all actuators."""
    n = len(actuators)
    if not n:
        return {}
    return {k: p.parameter(k, Float, n) for k in ("gear", "kp", "kd", "force")} | {"control": p.control("u", Float, n)}


def _actuate(links: Links, actuators: ActuatorArrays, given: dict[str, Ref], dt: Ref, found: AppliedForces) -> None:
    """Add the forces of actuators on joints."""
    p, chosen = links.program, actuators.on_joints
    if len(chosen) < len(actuators):
        index = p.constant("on_joints", Int, chosen)
        picked = {k: p.scratch(f"{k} on joints", Float, len(chosen)) for k in given}
        for k, whole in given.items():
            p.call(pick, index, whole, picked[k])
        given = picked
    table = Actuators(
        **{k: p.constant(f"actuator_{k}", Int, getattr(actuators, k)[chosen]) for k in ("dof", "q", "kind")},
        **{k: given[k] for k in ("gear", "kp", "kd", "force")},
        **{k: p.constant(f"control_{k}", Float, getattr(actuators, k)[chosen]) for k in ("lower", "upper")},
    )
    found.driven = table, given["control"]
    p.call(actuate, *found.driven, links.q, links.v, dt, found.force, found.resist)


def servo_resistance(links: Links, applied: AppliedForces) -> Ref | None:
    """Velocity gains of servos that are not at their bounds, per degree of freedom; None without actuators."""
    if applied.driven is None:
        return None
    resist = links.program.scratch("servo_resistance", Float, links.arrays.nv)
    links.program.call(resist_by_servos, *applied.driven, links.q, links.v, resist)
    return resist


def _compliant_contact(links: Links, model: SceneArrays, touch: Touch, force: Ref) -> tuple[Any, ...]:
    """Add compliant contact forces; returns the arguments that they depend on."""
    p, tree, candidates = links.program, model.tree, model.candidates
    last = np.concatenate([[-1], tree.v_start + tree.dofs - 1])  # last degree of freedom of each link
    ends = Ends(
        first=p.constant("end_first", Int, candidates.first),
        second=p.constant("end_second", Int, candidates.second),
        first_last=p.constant("end_first_last", Int, last[candidates.first]),
        second_last=p.constant("end_second_last", Int, last[candidates.second]),
    )
    # Means over the whole step also where servos are explicit: dt = 0 would give the force at an instant.
    step = Ref(p.buffers["dt"]) if model.contact.averaged else p.constant("instant", Float, 0.0)
    law = LinkLaw(
        dt=step,
        **{n: p.parameter(f"contact/{n}", Float) for n in ("k_e", "k_d", "k_f")},
        friction=p.parameter("friction", Float, len(candidates)),
    )
    soft = ends, touch, law
    p.call(link_contact, links.tree, links.branches, *soft, links.p, links.S, links.V, force)
    return soft
