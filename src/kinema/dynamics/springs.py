"""Springs and dampers between particles."""

from kinema.lang import Array, Float, Index, dot, func, ivec2, kernel, normalize, vec3


@func
def spring_force(d: vec3, u: vec3, stiffness: Float, rest: Float, damping: Float):
    """Force [N] on the first end of a spring; the second end is at d [m] from it and has relative velocity u [m/s].

    With n = d/|d|: k (|d| - rest) n + c (n.u) n. The code computes k (d - rest n) + ..., which for rest length 0 is
    k d, smooth everywhere. At d = 0 the direction is undefined: n is 0, so elastic force and damping vanish, and of
    their derivatives only k remains.
    """
    n = normalize(d)
    return (d - n * rest) * stiffness + n * (damping * dot(n, u))


@kernel
def spring_forces(
    e: Index,
    ends: Array[ivec2],
    x: Array[vec3],
    v: Array[vec3],
    stiffness: Array[Float],
    rest: Array[Float],
    damping: Array[Float],
    f: Array[vec3],
):
    """Add the forces [N] of all springs to their ends: equal, opposite and along the spring.

    x [m], v [m/s], stiffness [N/m], length at rest [m], damping along the spring [N s/m].

    Gradients:
        Exact, with respect to all arguments. At length 0, see `spring_force`; near it the direction changes fast, and
        the derivative grows as rest / length.
    """
    i, j = ends[e]
    pull = spring_force(x[j] - x[i], v[j] - v[i], stiffness[e], rest[e], damping[e])
    f[i] += pull
    f[j] -= pull
