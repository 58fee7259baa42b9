"""Forces of actuators, wrenches and compliant contacts in step programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.compliant import Ends, link_contact
from kinema.dynamics.actuators import Actuators, actuate
from kinema.dynamics.joints import Loaded, apply_wrenches, push_joints
from kinema.lang import Float, Int, vec3
from kinema.lang.programs.program import Ref
from kinema.math import Force
from kinema.model.arrays import SceneArrays
from kinema.scene.scene import COMPLIANT
from kinema.simulation.detection import detect
from kinema.simulation.matter import MatterProgram
from kinema.simulation.tree_dynamics import TreeProgram


@dataclass
class Drives:
    """What drives the joints.

    Attributes:
        force: On each degree of freedom [N m, N].
        resist: What actuators add to the diagonal of the mass matrix.
        touch: Where compliant contacts are; None without them.
        loaded: Bodies that wrenches act on, and the wrenches.
        soft: Compliant contacts: ends, places, time of which forces are means, and numbers of the law.
        felt: What soft matter does to every link.
    """

    force: Ref
    resist: Ref
    touch: Touch | None = None
    loaded: tuple[Loaded, Ref] | None = None
    soft: tuple[Any, ...] | None = None
    felt: Ref | None = None


def add_drives(
    parts: TreeProgram,
    model: SceneArrays,
    loaded: Sequence[str],
    q: Ref,
    v: Ref,
    dt: Ref,
    zero: Ref,
    matter: MatterProgram | None = None,
    felt: Ref | None = None,
) -> Drives:
    """Add the forces to a program.

    Args:
        parts: The tree's parts, with kinematics and velocities.
        model: The model.
        loaded: Names of bodies that wrenches act on.
        q: Coordinates.
        v: Velocities.
        dt: Time until the end of which servos act [s]: with 0 they act at once.
        zero: Zeros, one per degree of freedom.
        matter: What is soft, and pushes links.
        felt: What it does to every link, if that is known already.
    """
    p, tree, actuators = parts.program, model.tree, model.actuators
    soft = model.contact.law == COMPLIANT and len(model.candidates) > 0
    felt = matter.forces(parts) if matter is not None else felt
    if not len(actuators) and not loaded and not soft and felt is None:
        return Drives(zero, zero)
    found = Drives(p.scratch("drive", Float, tree.nv), zero, felt=felt)
    if len(actuators):
        found.resist = p.scratch("resist", Float, tree.nv)
        n = len(actuators)
        table = Actuators(
            **{k: p.constant(f"actuator_{k}", Int, getattr(actuators, k)) for k in ("dof", "q", "kind")},
            **{k: p.parameter(k, Float, n) for k in ("gear", "kp", "kd", "force")},
            **{k: p.constant(f"control_{k}", Float, getattr(actuators, k)) for k in ("lower", "upper")},
        )
        p.call(actuate, table, p.control("u", Float, n), q, v, dt, found.force, found.resist)
    if loaded:
        at = [tree.bodies.index(name) for name in loaded]
        links = tree.body_link[at]
        bodies = Loaded(
            link=p.constant("loaded_link", Int, links),
            last=p.constant("loaded_last", Int, tree.v_start[links - 1] + tree.dofs[links - 1] - 1),
            offset=p.constant("loaded_offset", vec3, np.asarray(tree.body_offset)[at]),
        )
        wrench = p.control("wrench", Force, len(loaded))
        p.call(apply_wrenches, parts.tree, parts.branches, bodies, wrench, parts.R, parts.p, parts.S, found.force)
        found.loaded = bodies, wrench
    if soft:
        _add_compliant_contact(parts, model, found)
    if felt is not None:
        p.call(push_joints, parts.tree, parts.S, felt, found.force)
    return found


def _add_compliant_contact(parts: TreeProgram, model: SceneArrays, drives: Drives) -> None:
    p, tree, candidates = parts.program, model.tree, model.candidates
    touch = detect(parts, model, p.constant("contact_margin", Float, model.contact.margin))
    last = np.concatenate([[-1], tree.v_start + tree.dofs - 1])  # of each link
    ends = Ends(
        first=p.constant("end_first", Int, candidates.first),
        second=p.constant("end_second", Int, candidates.second),
        first_last=p.constant("end_first_last", Int, last[candidates.first]),
        second_last=p.constant("end_second_last", Int, last[candidates.second]),
    )
    law = [p.parameter(f"contact/{n}", Float) for n in ("k_e", "k_d", "k_f")]
    # Of the whole step also where servos act at once: a mean over no time would be the force at an instant.
    step = Ref(p.buffers["dt"]) if model.contact.averaged else p.constant("instant", Float, 0.0)
    soft = (ends, touch, step, *law, p.parameter("friction", Float, len(candidates)))
    p.call(link_contact, parts.tree, parts.branches, *soft, parts.p, parts.S, parts.V, drives.force)
    drives.touch, drives.soft = touch, soft
