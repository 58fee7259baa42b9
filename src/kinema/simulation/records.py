"""What a step can report of bodies, sites and joints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.contact.wrenches import compliant_wrenches, contact_wrenches, loop_wrenches
from kinema.dynamics.report import (
    Sites,
    joint_loads,
    link_accelerations,
    loaded_wrenches,
    report_accelerations,
    report_bodies,
    report_imu,
    report_sites,
    soft_wrenches,
)
from kinema.errors import InputError
from kinema.lang import Int, mat33, vec3
from kinema.lang.programs.program import Ref
from kinema.math import Force, Motion
from kinema.model.arrays import SceneArrays
from kinema.simulation.applied_forces import Drives
from kinema.simulation.constraints import ConstraintProgram
from kinema.simulation.tree_dynamics import TreeProgram

OF_BODIES = ("position", "rotation", "velocity")
OF_SITES = ("site_position", "site_rotation", "site_velocity")
WITH_ACCELERATION = ("acceleration", "imu", "joint_load")
OF_CONSTRAINTS = ("impulse", "limit_impulse", "iterations", "gap", "point", "normal")
RECORDS = (*OF_CONSTRAINTS, *OF_BODIES, *OF_SITES, *WITH_ACCELERATION)


class Recorder:
    """Outputs of a step, at its start; those that are not asked for cost nothing.

    Args:
        parts: The tree's parts, with kinematics, inertias and velocities.
        model: The model.
        names: What to record, of RECORDS.
    """

    def __init__(self, parts: TreeProgram, model: SceneArrays, names: Sequence[str]) -> None:
        self.parts, self.model, self.names, self.program = parts, model, set(names), parts.program
        if not len(model.sites) and self.names & {*OF_SITES, "imu"}:
            name = next(n for n in names if n in (*OF_SITES, "imu"))
            raise InputError(
                f"record: there is no {name!r}", expected="a model with a site", fix="scene.add_site(body, name)"
            )
        if self.names & {*OF_SITES, "imu"}:
            p, sites = self.program, model.sites
            self.sites = Sites(
                link=p.constant("site_link", Int, sites.link),
                offset=p.parameter("place", vec3, len(sites)),
                rotation=p.constant("site_rotation", mat33, sites.rotation),
            )

    @property
    def wants_accelerations(self) -> bool:
        """Whether `accelerations` is needed."""
        return bool(self.names & {*WITH_ACCELERATION})

    def motion(self) -> None:
        """Poses and velocities."""
        parts = self.parts
        where = (parts.R, parts.p, parts.V)
        if self.names & {*OF_BODIES}:
            outs = self._outputs(OF_BODIES, len(self.model.bodies))
            self.program.call(report_bodies, parts.tree, parts.bodies, *where, *outs)
        if self.names & {*OF_SITES}:
            outs = self._outputs(OF_SITES, len(self.model.sites))
            self.program.call(report_sites, parts.tree, self.sites, *where, *outs)

    def accelerations(self, a: Ref, dt: Ref, drives: Drives, constraints: ConstraintProgram | None) -> None:
        """Accelerations, what sensors feel of them, and loads of joints.

        Args:
            a: Mean dv/dt of the step, impulses included.
            dt: Time step.
            drives: What pushes links from outside, and
            constraints: what holds them; None where nothing does.
        """
        p, parts = self.program, self.parts
        A = p.scratch("link_acceleration", Motion, len(self.model.joints) + 1)
        p.call(link_accelerations, parts.tree, parts.S, parts.V, parts.gravity, a, A)
        where = (parts.R, parts.p, parts.V, A)
        if "acceleration" in self.names:
            out = p.output("record_acceleration", Motion, len(self.model.bodies))
            p.call(report_accelerations, parts.tree, parts.bodies, *where, parts.gravity, out)
        if "imu" in self.names:
            out = p.output("record_imu", Motion, len(self.model.sites))
            p.call(report_imu, parts.tree, self.sites, *where, out)
        if "joint_load" in self.names:
            push, F = self._pushes(dt, drives, constraints), p.scratch("load", Force, len(self.model.joints) + 1)
            out = p.output("record_joint_load", Force, len(self.model.joints))
            p.call(joint_loads, parts.tree, parts.V, A, parts.inertia, push, parts.p, F, out)

    def _outputs(self, names: Sequence[str], count: int) -> list[Ref]:
        make = [self.program.output if name in self.names else self.program.scratch for name in names]
        elements = (vec3, mat33, Motion)
        return [m(f"record_{n}", e, count) for m, n, e in zip(make, names, elements, strict=True)]

    def _pushes(self, dt: Ref, drives: Drives, constraints: ConstraintProgram | None) -> Ref:
        """What acts on each link from outside, gravity apart."""
        p, parts, links = self.program, self.parts, len(self.model.joints) + 1
        contacts = constraints is not None and constraints.contacts > 0
        loops = constraints is not None and constraints.equations > 0
        if not (contacts or loops or drives.loaded or drives.soft or drives.felt):
            return p.constant("no_push", Force, np.zeros((links, 6)))
        push = p.scratch("push", Force, links)
        if drives.loaded:
            p.call(loaded_wrenches, parts.tree, *drives.loaded, parts.R, parts.p, push)
        if drives.felt:
            p.call(soft_wrenches, drives.felt, push)
        if drives.soft:
            p.call(compliant_wrenches, parts.tree, *drives.soft, parts.p, parts.V, push)
        if constraints is not None and contacts:
            count = (constraints.count.triples, constraints.count.equations, constraints.count.singles)
            p.call(
                contact_wrenches,
                parts.tree,
                constraints.sides,
                constraints.near,
                *count,
                constraints.impulse,
                dt,
                parts.p,
                push,
            )
        if constraints is not None and loops:
            where = (constraints.loops, constraints.count.singles, constraints.impulse, dt)
            p.call(loop_wrenches, parts.tree, *where, parts.R, parts.p, push)
        return push
