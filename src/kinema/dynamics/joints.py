"""Forces of joints: what drives them, their springs and dampers."""

from __future__ import annotations

from kinema.lang import Array, Float, Int, kernel, record


@record
class Springs:
    """Springs and dampers, one of each per degree of freedom.

    coordinate: Number of the coordinate in q, -1 where there is none (free and ball joints).
    stiffness: [N m/rad, N/m]
    rest: Coordinate without force [rad, m].
    damping: [N m s/rad, N s/m]
    """

    coordinate: Array[Int]
    stiffness: Array[Float]
    rest: Array[Float]
    damping: Array[Float]


@kernel
def net_forces(
    springs: Springs,
    tau: Array[Float],
    bias: Array[Float],
    q: Array[Float],
    v: Array[Float],
    armature: Array[Float],
    dt: Float,
    net: Array[Float],
    diagonal: Array[Float],
):
    """Force on each degree of freedom, and what belongs on the diagonal of the mass matrix.

    Springs and dampers act at the end of the step, with v' = v + dt a and q' = q + dt v':

        (M + dt d + dt^2 k) a = tau - bias - k (q - rest + dt v) - d v

    so that they may be as stiff as they like.
    """
    for i in range(len(tau)):
        resisting = springs.damping[i]
        pull = springs.damping[i] * v[i]
        if springs.coordinate[i] >= 0:
            stretch = q[springs.coordinate[i]] - springs.rest[i] + dt * v[i]
            pull = pull + springs.stiffness[i] * stretch
            resisting = resisting + dt * springs.stiffness[i]
        net[i] = tau[i] - bias[i] - pull
        diagonal[i] = armature[i] + dt * resisting
