"""Tendons."""

from __future__ import annotations

import math

import numpy as np

from kinema.scene.io.mjmodel.compiled import JOINTS, Compiled, pose_of
from kinema.scene.tendons import Pulley, Tendon, Wrap

FORCES = ("stiffness", "damping", "frictionloss", "armature", "stiffnesspoly", "dampingpoly")


def tendons_of(c: Compiled) -> tuple[Tendon, ...]:
    """The tendons that have an effect on the motion."""
    return tuple(made for t in range(c.m.ntendon) if (made := _tendon(c, t)) is not None)


def _tendon(c: Compiled, t: int) -> Tendon | None:
    m, name = c.m, c.tendon_names[t]
    acts = [word for word in FORCES if np.any(getattr(m, f"tendon_{word}")[t])]
    limited = bool(m.tendon_limited[t]) and not c.disabled("limit", "constraint")
    acts += [word for word, given in (("limited", limited), ("actfrclimited", m.tendon_actfrclimited[t])) if given]
    if not acts and not _is_driven(c, t):
        c.notes.append(f"left out: tendon {name!r}, which exerts no force")
        return None
    if problem := _problem_of(c, t, acts):
        what, where = f"tendon {name!r} is not supported: {problem}", f"tendon {name!r}"
        c.refuse("tendons", what, where, got=", ".join(acts) or "an actuator", expected="springs, dampers, actuators")
        return None
    first, count = int(m.tendon_adr[t]), int(m.tendon_num[t])
    wraps = range(first, first + count)
    over_sites = c.word("Wrap", m.wrap_type[first]) != "joint"
    sites = tuple(_stop(c, w) for w in wraps) if over_sites else ()
    joints = [] if over_sites else [(int(m.wrap_objid[w]), float(m.wrap_prm[w])) for w in wraps]
    low, high = (float(x) for x in m.tendon_lengthspring[t])
    return Tendon(
        name,
        tuple((c.joint_names[j], coefficient) for j, coefficient in joints),
        offset=sum(coefficient * c.reference(j) for j, coefficient in joints),
        stiffness=0.0 if c.disabled("spring") else float(m.tendon_stiffness[t]),
        damping=0.0 if c.disabled("damper") else float(m.tendon_damping[t]),
        rest=(low, high),
        sites=sites,
        lower=float(m.tendon_range[t, 0]) if limited else -math.inf,
        upper=float(m.tendon_range[t, 1]) if limited else math.inf,
    )


def _stop(c: Compiled, w: int) -> str | Wrap | Pulley:
    """A site, geom or pulley on the way of a tendon."""
    m, kind, k = c.m, c.word("Wrap", c.m.wrap_type[w]), int(c.m.wrap_objid[w])
    if kind == "pulley":
        return Pulley(float(m.wrap_prm[w]))
    if kind == "site":
        return c.site_names[k]
    body, side = int(m.geom_bodyid[k]), round(float(m.wrap_prm[w]))
    pose = pose_of(m.geom_pos[k], m.geom_quat[k])
    return Wrap(
        c.body_names[body] if body else "world",
        pose.position,
        pose.rotation,
        float(m.geom_size[k, 0]),
        kind == "cylinder",
        c.site_names[side] if side >= 0 else "",
    )


def _is_driven(c: Compiled, t: int) -> bool:
    m = c.m
    driving = (c.word("Trn", m.actuator_trntype[i]) == "tendon" for i in range(m.nactuator))
    return any(drives and m.actuator_trnid[i, 0] == t for i, drives in enumerate(driving))


def _problem_of(c: Compiled, t: int, acts: list[str]) -> str:
    """The reason why a tendon is unsupported; empty if it is supported."""
    m = c.m
    for word in ("frictionloss", "armature", "stiffnesspoly", "dampingpoly", "actfrclimited"):
        if word in acts:
            return f"it has {word}"
    for w in range(int(m.tendon_adr[t]), int(m.tendon_adr[t] + m.tendon_num[t])):
        kind = c.word("Wrap", m.wrap_type[w])
        if kind == "sphere" and m.wrap_prm[w] >= 0:
            return "it goes around a sphere with a side site; use a cylinder, or leave out the side site"
        if kind != "joint":
            continue
        if not JOINTS[joint := c.word("Joint", m.jnt_type[m.wrap_objid[w]])].is_single:
            return f"it goes over a {joint} joint"
    return "" if math.isfinite(m.tendon_lengthspring[t].sum()) else "its rest length is not finite"
