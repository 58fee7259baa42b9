"""Mass properties and joints."""

from __future__ import annotations

import math

import numpy as np

from kinema.scene import description as kd
from kinema.scene.io.mjmodel.actuators import actuators_of
from kinema.scene.io.mjmodel.compiled import JOINTS, Compiled, pose_of, unit_of, vector_of
from kinema.scene.io.mjmodel.softness import softness_of
from kinema.scene.io.poses import turned_inertia

LEAST = 1e-15  # MuJoCo's mjMINVAL


def mass_of(c: Compiled, b: int) -> kd.MassProperties | None:
    """Mass properties of a body; None without mass and inertia."""
    m = c.m
    if m.body_mass[b] == 0 and not np.any(m.body_inertia[b]):
        return None
    pose = pose_of(m.body_ipos[b], m.body_iquat[b])
    inertia = turned_inertia(np.diag(m.body_inertia[b]), pose.rotation)
    return kd.MassProperties(float(m.body_mass[b]), pose.position, inertia)


def joint_of(c: Compiled, j: int, mimics: dict[int, kd.Mimic]) -> kd.Joint:
    """A joint, with the armature and damping of its actuators."""
    m, element = c.m, c.element("joint", j)
    kind = JOINTS[c.word("Joint", m.jnt_type[j])]
    d = int(m.jnt_dofadr[j])
    reference = c.reference(j)
    no_limits = c.disabled("limit", "constraint") or not m.jnt_limited[j] or kind.limit is None
    lower, upper = (-math.inf, math.inf) if no_limits else (float(r) - reference for r in m.jnt_range[j])
    armature, damping = float(m.dof_armature[d]), float(m.dof_damping[d])
    polynomial = np.any(m.dof_dampingpoly[d])
    for i in actuators_of(c, j):  # actuators may add their own
        gear = float(m.actuator_gear[m.actuator_outadr[i], 0])
        armature += gear**2 * float(m.actuator_armature[i])
        damping += gear**2 * float(m.actuator_damping[i])
        polynomial |= np.any(m.actuator_dampingpoly[i])
    stiffness = 0.0 if c.disabled("spring") else float(m.jnt_stiffness[j])
    if polynomial or np.any(m.jnt_stiffnesspoly[j]) or m.jnt_springyield[j]:
        what = f"{element} has a nonlinear spring or damper"
        c.refuse("springs", what, element, fix="keep the first coefficient, and no springyield")
    if stiffness and not kind.is_single:
        what, expected = f"{element} has a spring and is {kind.word}", "springs of hinge and slide joints"
        c.refuse("springs", what, element, got=stiffness, expected=expected)
        stiffness = 0.0
    effort = math.inf
    if m.jnt_actfrclimited[j] and kind.is_single:
        low, effort = (float(f) for f in m.jnt_actfrcrange[j])
        if low != -effort:
            expected = "a range symmetric about 0"
            what = f"{element} has an asymmetric actuator force range"
            c.refuse("actuators", what, element, got=f"{low:g} {effort:g}", expected=expected)
            effort = math.inf
    return kd.Joint(
        c.joint_names[j],
        kind.word,
        axis=unit_of(m.jnt_axis[j]) if kind.has_axis else (0.0, 0.0, 1.0),
        anchor=vector_of(m.jnt_pos[j]) if not kind.position else (0.0, 0.0, 0.0),
        lower=lower,
        upper=upper,
        effort=effort,
        armature=armature,
        damping=0.0 if c.disabled("damper") else damping,
        stiffness=stiffness,
        rest=float(m.qpos_spring[m.jnt_qposadr[j]]) - reference if kind.is_single else 0.0,
        friction=0.0 if c.disabled("frictionloss", "constraint") else float(m.dof_frictionloss[d]),
        mimic=mimics.get(j),
        limit_softness=softness_of(c, element, m.jnt_solref[j], m.jnt_solimp[j]),
        limit_margin=max(float(m.jnt_margin[j]), 0.0),
        friction_softness=softness_of(c, element, m.dof_solref[d], m.dof_solimp[d]),
    )


def drag_of(c: Compiled, b: int) -> kd.Drag | None:
    """Drag of the box with a body's inertia, in the medium of the model; None without a medium or a mass."""
    m, opt = c.m, c.m.opt
    mass, (i, j, k) = float(m.body_mass[b]), (float(x) for x in m.body_inertia[b])
    if (opt.density <= 0 and opt.viscosity <= 0) or mass < LEAST or "fluid" in c.ignore:
        return None
    x, y, z = (math.sqrt(max(LEAST, six) / mass * 6) for six in (j + k - i, i + k - j, i + j - k))
    rotation = pose_of(m.body_ipos[b], m.body_iquat[b]).rotation
    return kd.Drag((x, y, z), rotation, float(opt.density), float(opt.viscosity), vector_of(opt.wind))
