"""Muscles: forces along transmissions from length, velocity and activation [MuJoCo, Muscles]."""

from __future__ import annotations

from kinema.dynamics.transmissions import FADE
from kinema.dynamics.transmissions import TINY as TINY_RANGE
from kinema.lang import Array, Float, Int, clamp, func, kernel, max, min, record, struct, vec2, vec3

TINY = 1e-15  # MuJoCo's smallest divisor


@struct
class Curve:
    """Numbers of a muscle, see `scene.activation.Muscle`."""

    force: Float
    first: Float
    last: Float
    lmin: Float
    lmax: Float
    vmax: Float
    fpmax: Float
    fvmax: Float


@record
class Muscles:
    """Muscles along transmissions.

    number: Index among all actuators.
    transmission: What it pulls.
    curve: Its numbers.
    lengths: The shortest and the longest length [m, rad].
    least_force: Lower bound of the force [N m, N].
    lower, upper: Bounds of the activation or control.
    """

    number: Array[Int]
    transmission: Array[Int]
    curve: Array[Curve]
    lengths: Array[vec2]
    least_force: Array[Float]
    lower: Array[Float]
    upper: Array[Float]


@func
def by_length(m: Curve, L: Float):
    """FL(L), four parabolas that meet with equal slopes, 1 at L = 1, and its derivative."""
    a, b = 0.5 * (m.lmin + 1.0), 0.5 * (1.0 + m.lmax)
    rising, falling = max(1.0 - a, TINY), max(b - 1.0, TINY)
    value, slope = 0.0, 0.0
    if m.lmin <= L and m.lmax >= L:
        if a >= L:
            x = (L - m.lmin) / rising
            value, slope = 0.5 * x * x, x / rising
        elif L <= 1.0:
            x = (1.0 - L) / rising
            value, slope = 1.0 - 0.5 * x * x, x / rising
        elif b >= L:
            x = (L - 1.0) / falling
            value, slope = 1.0 - 0.5 * x * x, -x / falling
        else:
            x = (m.lmax - L) / falling
            value, slope = 0.5 * x * x, -x / falling
    return vec2(value, slope)


@func
def by_velocity(m: Curve, V: Float):
    """FV(V), 0 for V <= -1, 1 at V = 0, and its derivative."""
    y = m.fvmax - 1.0
    value, slope = m.fvmax, 0.0
    if V <= -1.0:
        value = 0.0
    elif V <= 0.0:
        value, slope = (V + 1.0) * (V + 1.0), 2.0 * (V + 1.0)
    elif y >= V:
        gap = max(y, TINY)
        value, slope = m.fvmax - (y - V) * (y - V) / gap, 2.0 * (y - V) / gap
    return vec2(value, slope)


@func
def passive(m: Curve, L: Float):
    """FP(L), 0 up to L = 1, a parabola, then a line, and its derivative."""
    width = max(0.5 * (m.lmax - 1.0), TINY)
    x = (L - 1.0) / width
    value, slope = 0.0, 0.0
    if x > 1.0:
        value, slope = m.fpmax * (x - 0.5), m.fpmax / width
    elif x > 0.0:
        value, slope = 0.5 * m.fpmax * x * x, m.fpmax * x / width
    return vec2(value, slope)


@func
def muscle_force(m: Curve, lengths: vec2, a: Float, length: Float, rate: Float):
    """-force (FL(L) FV(V) a + FP(L)), and its derivatives by length and rate."""
    rest = max((lengths.y - lengths.x) / max(m.last - m.first, TINY), TINY)
    fastest = max(rest * m.vmax, TINY)
    L = m.first + (length - lengths.x) / rest
    fl, fv, fp = by_length(m, L), by_velocity(m, rate / fastest), passive(m, L)
    return vec3(
        -m.force * (fl.x * fv.x * a + fp.x),
        -m.force * (fl.y * fv.x * a + fp.y) / rest,
        -m.force * fl.x * fv.y * a / fastest,
    )


@kernel
def pull_muscles(
    muscles: Muscles,
    gear: Array[Float],
    most_force: Array[Float],
    signal: Array[Float],
    length: Array[Float],
    speed: Array[Float],
    dt: Float,
    pull: Array[Float],
    stiff: Array[Float],
):
    """Add the forces of muscles along transmissions, and what they resist accelerations with.

    It is implicit as in `drive_transmissions`, except where a longer muscle is weaker: there it would help accelerate.

    Gradients:
        Exact; the slopes of the curves have jumps where the velocity is zero.
    """
    for i in range(len(muscles.number)):
        n, k = muscles.number[i], muscles.transmission[i]
        g, a = gear[n], clamp(signal[n], muscles.lower[i], muscles.upper[i])
        rate = g * speed[k]
        found = muscle_force(muscles.curve[i], muscles.lengths[i], a, g * length[k] + dt * rate, rate)
        least, most = muscles.least_force[i], most_force[n]
        beyond = max(found.x - most, least - found.x) / max(0.5 * FADE * (most - least), TINY_RANGE)
        pull[k] += g * clamp(found.x, least, most)
        stiff[k] += -dt * g * g * (found.z + dt * min(found.y, 0.0)) * clamp(1.0 - beyond, 0.0, 1.0)


@kernel
def muscle_gains(
    muscles: Muscles,
    gear: Array[Float],
    most_force: Array[Float],
    signal: Array[Float],
    length: Array[Float],
    speed: Array[Float],
    gain: Array[Float],
):
    """Add the derivatives by rates of forces along transmissions; zero at bounds."""
    for i in range(len(muscles.number)):
        n, k = muscles.number[i], muscles.transmission[i]
        g, a = gear[n], clamp(signal[n], muscles.lower[i], muscles.upper[i])
        found = muscle_force(muscles.curve[i], muscles.lengths[i], a, g * length[k], g * speed[k])
        gain[k] += g * g * found.z if found.x > muscles.least_force[i] and found.x < most_force[n] else 0.0
