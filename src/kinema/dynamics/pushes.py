"""External forces on particles."""

from kinema.lang import Array, Index, kernel, vec3


@kernel
def push_particles(i: Index, push: Array[vec3], f: Array[vec3]):
    """Add an external force [N] to every particle.

    Gradients:
        Exact.
    """
    f[i] += push[i]
