"""Actuators: transmissions, gains, biases and bounds.

An actuator becomes a torque, position or velocity actuator of a joint if it is one, and a general one otherwise. The
control of general actuators is MuJoCo's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kinema.scene import description as kd
from kinema.scene.activation import INTEGRATOR, KINDS, MUSCLE, Activation, Muscle
from kinema.scene.io.mjmodel.compiled import JOINTS, Compiled, vector_of
from kinema.scene.validate import GENERAL


def actuators_of(c: Compiled, j: int) -> Iterator[int]:
    """Indices of the actuators that drive a joint."""
    for i in range(c.m.nactuator):
        if c.m.actuator_trnid[i, 0] == j and c.word("Trn", c.m.actuator_trntype[i]).startswith("joint"):
            yield i


def actuator_of(c: Compiled, i: int, tendons: frozenset[str]) -> kd.Actuator | None:
    """[MuJoCo, Actuation model] force = gain u + b0 + b1 l + b2 l'; generalised force = (dl/dq)^T force.

    Args:
        c: The model.
        i: Index of the actuator.
        tendons: Names of the tendons that the robot has.
    """
    m, element = c.m, c.element("actuator", i)
    in_group = m.actuator_group[i] >= 0 and m.opt.disableactuator >> m.actuator_group[i] & 1
    if in_group or c.disabled("actuation"):
        c.notes.append(f"left out: {element}, which the file disables")
        return None
    if problem := _problem_of(c, i, tendons):
        expected = "motor, position, velocity or general, on a hinge or slide joint, a tendon or a site"
        c.refuse("actuators", f"{element} is not supported: {problem}", element, expected=expected)
        return None
    if c.word("Gain", m.actuator_gaintype[i]) == "muscle":
        c.controls[i] = 1.0, 0.0
        return replace(_general(c, i, np.array([1.0, 0.0, 0.0]), np.zeros(3)), muscle=_muscle(c, i))
    gains, bias = [np.array(x[i, :3], float) for x in (m.actuator_gainprm, m.actuator_biasprm)]
    if c.word("Gain", m.actuator_gaintype[i]) == "fixed":
        gains[1:] = 0.0
    if c.word("Bias", m.actuator_biastype[i]) == "none":
        bias[:] = 0.0
    c.controls[i] = 1.0, 0.0
    on_joint = c.word("Trn", m.actuator_trntype[i]).startswith("joint")
    if on_joint and c.word("Dyn", m.actuator_dyntype[i]) == "none" and (made := _plain(c, i, gains, bias)) is not None:
        return made
    return _general(c, i, gains, bias)


def _plain(c: Compiled, i: int, gains: np.ndarray, bias: np.ndarray) -> kd.Actuator | None:
    """A torque, position or velocity actuator of a joint; None if it is no such actuator."""
    m = c.m
    j, gear, gain = int(m.actuator_trnid[i, 0]), float(m.actuator_gear[m.actuator_outadr[i], 0]), float(gains[0])
    low, high = (float(f) for f in m.actuator_forcerange[i])
    if gains[1:].any() or (m.actuator_forcelimited[i] and low != -high):
        return None
    force = abs(gear) * high if m.actuator_forcelimited[i] else math.inf
    actuator = kd.Actuator(c.actuator_names[i], c.joint_names[j], force=force)
    if not bias.any():
        actuator, scale, shift = replace(actuator, kind="torque", gear=gear * gain), 1.0, 0.0
    elif abs(gear) < 1e-12:
        return None
    elif gain > 0 and bias[0] == 0 and math.isclose(gain, -bias[1], rel_tol=1e-12) and bias[2] <= 0:
        kp, kd_ = gain * gear**2, -float(bias[2]) * gear**2
        actuator, scale, shift = replace(actuator, kind="position", kp=kp, kd=kd_), 1 / gear, c.reference(j)
    elif gain > 0 and not bias[:2].any() and math.isclose(gain, -bias[2], rel_tol=1e-12):
        actuator, scale, shift = replace(actuator, kind="velocity", kd=gain * gear**2), 1 / gear, 0.0
    else:
        return None
    if (scale, shift) != (1.0, 0.0):
        element = c.element("actuator", i)
        c.notes.append(f"{element}: the control is MuJoCo's times {scale:g} minus {shift:g}")
    c.controls[i] = scale, shift
    lower, upper = sorted(bound * scale - shift for bound in _controls(c, i))
    return replace(actuator, lower=lower, upper=upper)


def _general(c: Compiled, i: int, gains: np.ndarray, bias: np.ndarray) -> kd.Actuator:
    m = c.m
    target, k = c.word("Trn", m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
    gears = np.array(m.actuator_gear[m.actuator_outadr[i]], float)
    low, high = (float(f) for f in m.actuator_forcerange[i]) if m.actuator_forcelimited[i] else (-math.inf, math.inf)
    lower, upper = _controls(c, i)
    actuator = kd.Actuator(
        c.actuator_names[i],
        "",
        GENERAL,
        gear=float(gears[0]),
        lower=lower,
        upper=upper,
        force=high,
        least_force=low,
        gain=vector_of(gains),
        bias=vector_of(bias),
        activation=_activation(c, i),
    )
    if target == "tendon":
        return replace(actuator, tendon=c.tendon_names[k])
    if target == "site":
        wrench = (*gears[3:], *gears[:3])  # MuJoCo's gear is force, then moment
        return replace(actuator, gear=1.0, site=c.site_names[k], wrench=tuple(float(w) for w in wrench))
    return replace(actuator, joint=c.joint_names[k], offset=c.reference(k))


def _activation(c: Compiled, i: int) -> Activation | None:
    m, kind = c.m, c.word("Dyn", c.m.actuator_dyntype[i])
    if kind == "none":
        return None
    times = vector_of(m.actuator_dynprm[i, :3]) if kind == MUSCLE else (float(m.actuator_dynprm[i, 0]), 0.0, 0.0)
    low, high = (float(a) for a in m.actuator_actrange[i]) if m.actuator_actlimited[i] else (-math.inf, math.inf)
    return Activation(kind, (0.0, 0.0, 0.0) if kind == INTEGRATOR else times, low, high, bool(m.actuator_actearly[i]))


def _muscle(c: Compiled, i: int) -> Muscle:
    m = c.m
    first, last, force, scale, lmin, lmax, vmax, fpmax, fvmax = (float(x) for x in m.actuator_gainprm[i, :9])
    if force < 0:
        force = scale / max(float(m.actuator_acc0[i]), 1e-15)
    if c.word("Bias", m.actuator_biastype[i]) == "none":
        fpmax = 0.0
    short, long = (float(x) for x in m.actuator_lengthrange[i])
    return Muscle(force, (short, long), (first, last), lmin, lmax, vmax, fpmax, fvmax)


def _controls(c: Compiled, i: int) -> tuple[float, float]:
    """Bounds of MuJoCo's control."""
    m = c.m
    if not m.actuator_ctrllimited[m.actuator_ctrladr[i]] or c.disabled("clampctrl"):
        return -math.inf, math.inf
    low, high = (float(u) for u in m.actuator_ctrlrange[m.actuator_ctrladr[i]])
    return low, high


def _problem_of(c: Compiled, i: int, tendons: frozenset[str]) -> str:
    """The reason why an actuator is unsupported; empty if it is supported."""
    m = c.m
    target, k = c.word("Trn", m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
    if target in ("joint", "jointinparent"):
        if not JOINTS[joint := c.word("Joint", m.jnt_type[k])].is_single:
            return f"it drives a {joint} joint"
    elif target == "tendon":
        if c.tendon_names[k] not in tendons:
            return f"it drives tendon {c.tendon_names[k]!r}, which is left out"
    elif target != "site":
        return f"it drives a {target}"
    elif m.actuator_trnid[i, 1] >= 0:
        return "it drives a site relative to another one"
    if (dynamics := c.word("Dyn", m.actuator_dyntype[i])) not in ("none", *KINDS) or m.actuator_actnum[i] > 1:
        return f"it has dynamics ({dynamics})"
    gain, bias = c.word("Gain", m.actuator_gaintype[i]), c.word("Bias", m.actuator_biastype[i])
    if gain not in ("fixed", "affine", "muscle"):
        return f"its gain is of type {gain}"
    if bias not in ("none", "affine", "muscle"):
        return f"its bias is of type {bias}"
    if (gain == "muscle" or bias == "muscle") and (problem := _problem_of_muscle(c, i, gain, bias)):
        return problem
    if m.actuator_delay[i] > 0 or m.actuator_ctrlnum[i] != 1:
        return "it has a delay or several controls"
    if m.actuator_forcelimited[i] and m.actuator_forcerange[i, 1] < 0:
        return "its largest force is negative"
    if not target.startswith("joint") and (m.actuator_armature[i] or m.actuator_damping[i]):
        return f"it has armature or damping, and drives a {target}"
    return ""


def _problem_of_muscle(c: Compiled, i: int, gain: str, bias: str) -> str:
    """The reason why a muscle is unsupported; empty if it is supported."""
    m = c.m
    if gain != "muscle" or bias == "affine":
        return f"its gain is of type {gain}, its bias of type {bias}"
    prm, lengths = m.actuator_gainprm[i, :9], m.actuator_lengthrange[i]
    if bias == "muscle" and not np.array_equal(prm, m.actuator_biasprm[i, :9]):
        return "gain and bias are different muscles"
    if not lengths[0] < lengths[1] or not prm[0] < prm[1]:
        return "its lengthrange or range is empty"
    return (
        "" if prm[4] < 1 < prm[5] and (prm[4:] >= 0).all() else "its lmin, lmax, vmax, fpmax or fvmax is out of range"
    )
