"""Activations of actuators: states that follow controls."""

from __future__ import annotations

from kinema.lang import Array, Float, Int, clamp, exp, func, kernel, max, record, vec3
from kinema.model.activations import EXACT, INTEGRATOR, MUSCLE

TINY = 1e-15  # [s], MuJoCo's shortest time constant


@record
class Activations:
    """Actuators with an activation.

    row: For every actuator, its row below, or -1.
    kind: INTEGRATOR, FILTER, EXACT or MUSCLE.
    times: See `scene.activation.Activation`.
    least, most: Bounds of the activation.
    early: 1 where the force takes the activation at the end of the step.
    lower, upper: Bounds of the control.
    """

    row: Array[Int]
    kind: Array[Int]
    times: Array[vec3]
    least: Array[Float]
    most: Array[Float]
    early: Array[Int]
    lower: Array[Float]
    upper: Array[Float]


@func
def smooth_step(x: Float):
    """From 0 at x = 0 to 1 at x = 1, twice differentiable."""
    t = clamp(x, 0.0, 1.0)
    return t * t * t * (3.0 * t * (2.0 * t - 5.0) + 10.0)


@func
def muscle_time(u: Float, a: Float, times: vec3):
    """Time constant of a muscle: longer to activate and shorter to deactivate the more it is active [s]."""
    within = 0.5 + 1.5 * clamp(a, 0.0, 1.0)
    rising, falling = times.x * within, times.y / within
    share = 1.0 if u > a else 0.0
    if times.z >= TINY:
        share = smooth_step((u - a) / times.z + 0.5)
    return falling + (rising - falling) * share


@kernel
def activate(
    table: Activations,
    control: Array[Float],
    act: Array[Float],
    dt: Float,
    act_next: Array[Float],
    signal: Array[Float],
):
    """Advance all activations by a step, and collect what scales the gain of every actuator: control or activation.

    Gradients:
        Exact; one-sided at bounds and where a muscle without smoothing passes from activation to deactivation.
    """
    for i in range(len(control)):
        r = table.row[i]
        if r < 0:
            signal[i] = control[i]
        else:
            u, a, times = clamp(control[i], table.lower[r], table.upper[r]), act[r], table.times[r]
            after = a + dt * u
            if table.kind[r] == MUSCLE:
                u = clamp(u, 0.0, 1.0)
                after = a + dt * (u - a) / max(muscle_time(u, a, times), TINY)
            elif table.kind[r] == EXACT:
                tau = max(times.x, TINY)
                after = a + (u - a) * (1.0 - exp(-dt / tau))
            elif table.kind[r] != INTEGRATOR:
                after = a + dt * (u - a) / max(times.x, TINY)
            after = clamp(after, table.least[r], table.most[r])
            act_next[r] = after
            signal[i] = after if table.early[r] > 0 else a
