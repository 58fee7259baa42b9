"""Recorded quantities of a step: contacts, limits, bodies, sites and joints; unrequested ones cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.wrenches import compliant_wrenches, contact_wrenches, loop_wrenches
from kinema.dynamics.report import (
    Sites,
    joint_loads,
    link_accelerations,
    link_wrenches,
    loaded_wrenches,
    report_accelerations,
    report_bodies,
    report_contact_impulses,
    report_impulses,
    report_imu,
    report_sites,
)
from kinema.errors import InputError
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force, Motion
from kinema.model.arrays import SceneArrays
from kinema.scene.contact import NEWTON
from kinema.simulation.applied_forces import AppliedForces
from kinema.simulation.contact import Ended
from kinema.simulation.detection import record_touch
from kinema.simulation.links import Links

OF_BODIES = ("position", "rotation", "velocity")
OF_SITES = ("site_position", "site_rotation", "site_velocity")
WITH_ACCELERATION = ("acceleration", "imu", "joint_load")
OF_CANDIDATES = ("gap", "point", "normal")
OF_CONSTRAINTS = ("impulse", "limit_impulse", "iterations", *OF_CANDIDATES)
RECORDS = (*OF_CONSTRAINTS, *OF_BODIES, *OF_SITES, *WITH_ACCELERATION)


def record(
    names: Sequence[str],
    links: Links,
    model: SceneArrays,
    touch: Touch | None,
    end: Ended | None,
    mean: Ref,
    dt: Ref,
    applied: AppliedForces,
) -> None:
    """Add outputs of a step.

    Args:
        names: Names of recorded quantities, from RECORDS.
        links: Links at the start of the step.
        model: The model.
        touch: All contact candidates there, if gap, point or normal are recorded.
        end: The end of the step; None without constraints.
        mean: Mean accelerations dv/dt of the step, including impulses.
        dt: Time step.
        applied: Applied forces.
    """
    _record_impulses(links.program, model, end, names)
    record_touch(links.program, touch, len(model.candidates), names)
    sites = _sites(links, model, names)
    _record_motion(links, model, sites, {*names})
    if "joint_load" in names and model.soft is not None and model.soft.turns:
        what = "record: 'joint_load' does not include torsional and rolling friction and welds of the law 'convex'"
        raise InputError(what, fix="condim 3 or 1, and connect in place of weld; or law='mlcp'")
    if {*WITH_ACCELERATION} & {*names}:
        _record_accelerations(links, model, sites, {*names}, mean, dt, applied, end)


def _record_impulses(p: Builder, model: SceneArrays, end: Ended | None, names: Sequence[str]) -> None:
    """Impulses of contacts and limits."""
    fixed, candidates = model.constraints, model.hard_candidates
    limits = len(fixed.limit_names)
    for name in names:
        if name == "iterations" and "record_iterations" not in p.buffers:
            fix = f"Contact(tolerance=...) or Contact(solver={NEWTON!r}), and a contact, a limit or a loop"
            raise InputError("record: the number of iterations is fixed, or there are none", got=name, fix=fix)
        if name == "limit_impulse" and not limits:
            raise InputError(f"record: there is no {name!r}", expected="a model with a limited joint")
        if name == "impulse" and not candidates:
            raise InputError(f"record: there is no {name!r}", expected="a model with a contact that is not compliant")
        if name not in ("impulse", "limit_impulse"):
            continue
        assert end is not None
        c, first = end.rows.constraints, fixed.singles + 3 * fixed.equations
        start, count = (first, 3 * candidates) if name == "impulse" else (fixed.singles - limits, limits)
        at, out = p.constant(f"{name}_start", Int, start), p.output(f"record_{name}", Float, count)
        if name == "impulse" and c.picked:
            where = (at, c.count.triples, c.count.equations, end.rows.surface)
            p.call(report_contact_impulses, end.impulse, *where, out)
        else:
            p.call(report_impulses, end.impulse, at, out)


def _sites(links: Links, model: SceneArrays, names: Sequence[str]) -> Sites | None:
    """Frames of sensors, if any of their quantities is recorded."""
    p = links.program
    asked = [n for n in names if n in (*OF_SITES, "imu")]
    if not asked:
        return None
    if not len(model.sites):
        fix = "scene.add_site(body, name)"
        raise InputError(f"record: there is no {asked[0]!r}", expected="a model with a site", fix=fix)
    return Sites(
        link=p.constant("site_link", Int, model.sites.link),
        offset=links.tables.places(len(model.sites)),
        rotation=p.constant("site_rotation", mat33, model.sites.rotation),
    )


def _record_motion(links: Links, model: SceneArrays, sites: Sites | None, names: set[str]) -> None:
    """Poses and velocities."""
    p = links.program

    def outputs(asked: Sequence[str], count: int) -> list[Ref]:
        make = [p.output if name in names else p.scratch for name in asked]
        return [m(f"record_{n}", e, count) for m, n, e in zip(make, asked, (vec3, mat33, Motion), strict=True)]

    if names & {*OF_BODIES}:
        outs = outputs(OF_BODIES, len(model.bodies))
        p.call(report_bodies, links.tree, links.bodies, links.R, links.p, links.V, *outs)
    if names & {*OF_SITES}:
        p.call(report_sites, links.tree, sites, links.R, links.p, links.V, *outputs(OF_SITES, len(model.sites)))


def _record_accelerations(
    links: Links,
    model: SceneArrays,
    sites: Sites | None,
    names: set[str],
    mean: Ref,
    dt: Ref,
    applied: AppliedForces,
    end: Ended | None,
) -> None:
    """Accelerations, IMU readings, and loads of joints."""
    p, count = links.program, len(model.joints) + 1
    A = p.scratch("link_acceleration", Motion, count)
    p.call(link_accelerations, links.tree, links.S, links.V, links.gravity, mean, A)
    where = (links.R, links.p, links.V, A)
    if "acceleration" in names:
        out = p.output("record_acceleration", Motion, len(model.bodies))
        p.call(report_accelerations, links.tree, links.bodies, *where, links.gravity, out)
    if "imu" in names:
        p.call(report_imu, links.tree, sites, *where, p.output("record_imu", Motion, len(model.sites)))
    if "joint_load" in names:
        push, F = _external_wrenches(links, dt, applied, end), p.scratch("load", Force, count)
        out = p.output("record_joint_load", Force, len(model.joints))
        p.call(joint_loads, links.tree, links.V, A, links.inertia, push, links.p, F, out)


def _external_wrenches(links: Links, dt: Ref, applied: AppliedForces, end: Ended | None) -> Ref:
    """External wrench on each link, without gravity."""
    p, count = links.program, len(links.arrays.parent) + 1
    contacts = end is not None and end.rows.contacts is not None
    loops = end is not None and end.rows.loops is not None
    if not (contacts or loops or applied.loaded or applied.own or applied.soft or applied.felt or applied.passive):
        return p.constant("no_push", Force, np.zeros((count, 6)))
    push = p.scratch("push", Force, count)
    if applied.loaded:
        p.call(loaded_wrenches, links.tree, *applied.loaded, links.R, links.p, push)
    for on_links in (applied.felt, applied.own, applied.passive):
        if on_links:
            p.call(link_wrenches, on_links, push)
    if applied.soft:
        p.call(compliant_wrenches, links.tree, *applied.soft, links.p, links.V, push)
    if end is not None and end.rows.contacts is not None:
        near = end.rows.contacts
        where = (near.sides, near.near, *end.rows.counts, end.impulse, dt)
        p.call(contact_wrenches, links.tree, *where, links.p, push)
    if end is not None and end.rows.loops is not None:
        where = (end.rows.loops, end.rows.count.singles, end.impulse, dt)
        p.call(loop_wrenches, links.tree, *where, links.R, links.p, push)
    return push
