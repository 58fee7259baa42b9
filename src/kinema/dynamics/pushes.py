"""Forces on particles from outside."""

from kinema.lang import Array, Index, kernel, vec3


@kernel
def push_particles(i: Index, push: Array[vec3], f: Array[vec3]):
    """Adds a given force [N] to those of every particle.

    Gradients:
        Exact.
    """
    f[i] += push[i]
