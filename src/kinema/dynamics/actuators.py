"""Actuators: generalised forces on joints, driven by controls."""

from __future__ import annotations

from kinema.lang import Array, Float, Int, abs, clamp, kernel, max, min, record
from kinema.model.actuators import POSITION, TORQUE

FADE = 0.5  # excess over the bound, relative to it, at which a servo is a constant force and no longer implicit
TINY = 1e-12  # [N m, N], the smallest range of this fading: a bound may be 0


@record
class Actuators:
    """Actuators of joints with one degree of freedom.

    dof, q: The degree of freedom and its coordinate.
    kind: TORQUE (gear * u), POSITION (kp (u - q) - kd v) or VELOCITY (kd (u - v)).
    gear: Force per unit of control [N m, N].
    kp: Position gain [N m/rad, N/m].
    kd: Velocity gain [N m s/rad, N s/m].
    lower, upper: Bounds of the control u.
    force: Bound of the force [N m, N].
    """

    dof: Array[Int]
    q: Array[Int]
    kind: Array[Int]
    gear: Array[Float]
    kp: Array[Float]
    kd: Array[Float]
    lower: Array[Float]
    upper: Array[Float]
    force: Array[Float]


@kernel
def actuate(
    actuators: Actuators,
    control: Array[Float],
    q: Array[Float],
    v: Array[Float],
    dt: Float,
    drive: Array[Float],
    resist: Array[Float],
):
    """Add the force of every actuator to `drive`, and its addition to the diagonal of the mass matrix to `resist`.

    Servos are implicit, like springs and dampers, so that they may be stiff: their force is force - stiff * a, with the
    acceleration a of the step. A servo whose force, for the velocity at the start of the step, exceeds its bound exerts
    the bound. Its implicit part fades with the excess over the bound: a switch would change the force by stiff * a, and
    a servo would leave its bound in one step or in the next, discontinuously. With the fading it leaves the bound when
    force - stiff * a passes the bound, exactly if this value changes by the range of the fading in a step, else about
    then.
    """
    for i in range(len(actuators.dof)):
        d, kp, kd = actuators.dof[i], actuators.kp[i], actuators.kd[i]
        u = max(min(control[i], actuators.upper[i]), actuators.lower[i])
        force, stiff = 0.0, 0.0
        if actuators.kind[i] == TORQUE:
            force = actuators.gear[i] * u
        elif actuators.kind[i] == POSITION:
            force = kp * (u - q[actuators.q[i]] - dt * v[d]) - kd * v[d]
            stiff = dt * (dt * kp + kd)
        else:
            force = kd * (u - v[d])
            stiff = dt * kd
        bound = actuators.force[i]
        beyond = (abs(force) - bound) / max(FADE * bound, TINY)
        drive[d] += clamp(force, -bound, bound)
        resist[d] += stiff * clamp(1.0 - beyond, 0.0, 1.0)


@kernel
def resist_by_servos(
    actuators: Actuators, control: Array[Float], q: Array[Float], v: Array[Float], resist: Array[Float]
):
    """Add the velocity gain of every servo that is not at its bound to `resist`."""
    for i in range(len(actuators.dof)):
        d, kd = actuators.dof[i], actuators.kd[i]
        u = max(min(control[i], actuators.upper[i]), actuators.lower[i])
        force, gain = 0.0, 0.0
        if actuators.kind[i] == POSITION:
            force = actuators.kp[i] * (u - q[actuators.q[i]]) - kd * v[d]
            gain = kd
        elif actuators.kind[i] != TORQUE:
            force = kd * (u - v[d])
            gain = kd
        resist[d] += gain if abs(force) < actuators.force[i] else 0.0
