"""Impedance and reference acceleration of soft constraints, from solref and solimp [MuJoCo, Solver parameters].

With the distance r of a constraint from where it begins to act, and its velocity v = dr/dt:

    d(r)   impedance, from solimp: the share of a hard constraint's force                                    (1)
    a_ref = -b v - k d(r) r          the acceleration that a hard constraint would impose                    (2)
    R = (1 - d) / d * weight         regularisation; the force is -(a - a_ref) / R where it acts             (3)

`weight` approximates the diagonal of J M^-1 J^T by inverse weights in the initial pose (`model.inverse_weights`).
"""

from __future__ import annotations

from kinema.lang import Float, clamp, func, max, pow, struct, vec2
from kinema.scene.softness import LEAST, MOST

TINY = 1e-15  # MuJoCo's smallest divisor


@struct
class Impedance:
    """solimp: impedance at distance 0, impedance at `width`, width [m, rad], midpoint [-], power [-]."""

    near: Float
    far: Float
    width: Float
    midpoint: Float
    power: Float


@func
def impedance(solimp: Impedance, r: Float):
    """d(r), a sigmoid of two powers that meet at the midpoint (1).

    Gradients:
        Exact; at r = 0 those of r < 0.
    """
    near, far = clamp(solimp.near, LEAST, MOST), clamp(solimp.far, LEAST, MOST)
    middle, power = clamp(solimp.midpoint, LEAST, MOST), max(solimp.power, 1.0)
    flat = solimp.width <= TINY
    width = 1.0 if flat else solimp.width
    x = r / width if r >= 0.0 else -r / width
    found = 0.5 * (near + far)
    if not flat:
        found = far
        if x < 1.0:
            along = x
            if x <= middle and x > TINY:
                along = middle * pow(x / middle, power)
            elif x > middle:
                along = 1.0 - (1.0 - middle) * pow((1.0 - x) / (1.0 - middle), power)
            found = near + along * (far - near)
    return found


@func
def damping_and_stiffness(solref: vec2, far: Float, dt: Float):
    """b and k of a_ref (2) [1/s, 1/s^2]; a time constant is at least two time steps."""
    most = clamp(far, LEAST, MOST)
    b, k = -solref.y / most, -solref.x / (most * most)
    if solref.x > 0.0:
        time = max(solref.x, 2.0 * dt)
        b = 2.0 / (most * time)
        k = 1.0 / max(most * most * time * time * solref.y * solref.y, TINY)
    return b, k


@func
def stiffness_of(impedance: Float, weight: Float):
    """1 / R (3)."""
    return 1.0 / max((1.0 - impedance) / impedance * weight, TINY)
