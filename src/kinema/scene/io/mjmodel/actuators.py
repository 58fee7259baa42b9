"""Actuators: transmissions, gains, biases and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kinema.scene import description as kd
from kinema.scene.io.mjmodel.compiled import JOINTS, Compiled


def actuators_of(c: Compiled, j: int) -> Iterator[int]:
    """Indices of the actuators that drive a joint."""
    for i in range(c.m.nactuator):
        if c.m.actuator_trnid[i, 0] == j and c.word("Trn", c.m.actuator_trntype[i]).startswith("joint"):
            yield i


def actuator_of(c: Compiled, i: int) -> kd.Actuator | None:
    """[MuJoCo, Actuation model] force = gain u + b0 + b1 gear q + b2 gear v; torque = gear * force."""
    m, element = c.m, c.element("actuator", i)
    in_group = m.actuator_group[i] >= 0 and m.opt.disableactuator >> m.actuator_group[i] & 1
    if in_group or c.disabled("actuation"):
        c.notes.append(f"left out: {element}, which the file disables")
        return None
    problem = _problem_of(c, i)
    j, gear = int(m.actuator_trnid[i, 0]), float(m.actuator_gear[m.actuator_outadr[i], 0])
    gain, bias = float(m.actuator_gainprm[i, 0]), [float(b) for b in m.actuator_biasprm[i, :3]]
    if c.word("Bias", m.actuator_biastype[i]) == "none":
        bias = [0.0, 0.0, 0.0]
    low, high = (float(f) for f in m.actuator_forcerange[i])
    force = abs(gear) * high if m.actuator_forcelimited[i] else math.inf
    if not problem and m.actuator_forcelimited[i] and low != -high:
        problem = f"its force range {low:g} {high:g} is not symmetric about 0"
    actuator = kd.Actuator(c.actuator_names[i], "" if problem else c.joint_names[j], force=force)
    if bias == [0.0, 0.0, 0.0]:
        actuator, scale, shift = replace(actuator, kind="torque", gear=gear * gain), 1.0, 0.0
    elif abs(gear) < 1e-12:
        problem = problem or "its gear is 0"
    elif gain > 0 and bias[0] == 0 and math.isclose(gain, -bias[1], rel_tol=1e-12) and bias[2] <= 0:
        kp, kd_ = gain * gear**2, -bias[2] * gear**2
        actuator, scale, shift = replace(actuator, kind="position", kp=kp, kd=kd_), 1 / gear, c.reference(j)
    elif gain > 0 and bias[:2] == [0.0, 0.0] and math.isclose(gain, -bias[2], rel_tol=1e-12):
        actuator, scale, shift = replace(actuator, kind="velocity", kd=gain * gear**2), 1 / gear, 0.0
    else:
        problem = problem or f"gain {gain:g} with bias {bias[0]:g} {bias[1]:g} {bias[2]:g}"
    if problem:
        expected = "motor, position or velocity, without dynamics, on a hinge or slide joint"
        c.refuse("actuators", f"{element} is not supported: {problem}", element, expected=expected)
        return None
    if (scale, shift) != (1.0, 0.0):
        c.notes.append(f"{element}: the control is MuJoCo's times {scale:g} minus {shift:g}")
    if m.actuator_ctrllimited[m.actuator_ctrladr[i]] and not c.disabled("clampctrl"):
        lower, upper = sorted(float(u) * scale - shift for u in m.actuator_ctrlrange[m.actuator_ctrladr[i]])
        actuator = replace(actuator, lower=lower, upper=upper)
    return actuator


def _problem_of(c: Compiled, i: int) -> str:
    """The reason why an actuator type is unsupported; empty if it is supported."""
    m = c.m
    if (target := c.word("Trn", m.actuator_trntype[i])) not in ("joint", "jointinparent"):
        return f"it drives a {target}"
    if not JOINTS[joint := c.word("Joint", m.jnt_type[m.actuator_trnid[i, 0]])].is_single:
        return f"it drives a {joint} joint"
    if (dynamics := c.word("Dyn", m.actuator_dyntype[i])) != "none":
        return f"it has dynamics ({dynamics})"
    if (gain := c.word("Gain", m.actuator_gaintype[i])) != "fixed":
        return f"its gain is of type {gain}"
    if (bias := c.word("Bias", m.actuator_biastype[i])) not in ("none", "affine"):
        return f"its bias is of type {bias}"
    if m.actuator_delay[i] > 0 or m.actuator_ctrlnum[i] != 1:
        return "it has a delay or several controls"
    return ""
