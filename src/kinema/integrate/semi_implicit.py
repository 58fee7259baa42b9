"""Semi-implicit (symplectic) Euler for particles."""

from kinema.lang import Array, Float, Index, Int, func, kernel, vec3


@func
def accelerated(v: vec3, f: vec3, w: Float, gravity: vec3, dt: Float):
    """Velocity [m/s] after a step; 0 where 1/m is 0."""
    moved = v + (f * w + gravity) * dt
    return moved if w > 0.0 else moved * 0.0


@kernel
def advance_particles(
    i: Index,
    x: Array[vec3],
    v: Array[vec3],
    f: Array[vec3],
    inv_mass: Array[Float],
    gravity: vec3,
    dt: Float,
    x_next: Array[vec3],
    v_next: Array[vec3],
):
    """v' = v + dt (f/m + g), x' = x + dt v'; a particle with inv_mass 0 stays where it is.

    x [m], v [m/s], f [N], inv_mass [1/kg], gravity [m/s^2], dt [s].
    """
    velocity = accelerated(v[i], f[i], inv_mass[i], gravity, dt)
    v_next[i] = velocity
    x_next[i] = x[i] + velocity * dt


@kernel
def advance_carried(
    i: Index,
    pinned: Array[Int],
    x: Array[vec3],
    v: Array[vec3],
    f: Array[vec3],
    inv_mass: Array[Float],
    gravity: vec3,
    dt: Float,
    x_next: Array[vec3],
    v_next: Array[vec3],
):
    """`advance_particles` with particles pinned to links (pinned >= 0), which keep their velocity."""
    velocity = accelerated(v[i], f[i], inv_mass[i], gravity, dt)
    velocity = v[i] if pinned[i] >= 0 else velocity
    v_next[i] = velocity
    x_next[i] = x[i] + velocity * dt
