"""Forces of joints: what drives them, their springs and dampers, and wrenches on bodies."""

from __future__ import annotations

from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, cross, kernel, local, mat33, record, vec3
from kinema.math import Force, Motion


@record
class Springs:
    """Springs of revolute and prismatic joints, and dampers of all.

    spring: Number of the spring of each degree of freedom, -1 where there is none (free and ball joints).
    coordinate: What each spring stretches: number of the coordinate in q.
    stiffness: Of each spring [N m/rad, N/m].
    rest: Coordinate at which each spring is without force [rad, m].
    damping: Of each degree of freedom [N m s/rad, N s/m].
    """

    spring: Array[Int]
    coordinate: Array[Int]
    stiffness: Array[Float]
    rest: Array[Float]
    damping: Array[Float]


@kernel
def net_forces(
    springs: Springs,
    tau: Array[Float],
    drive: Array[Float],
    resist: Array[Float],
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

        (M + dt d + dt^2 k + resist) a = tau + drive - bias - k (q - rest + dt v) - d v

    so that they may be as stiff as they like; `drive` and `resist` are those of actuators and wrenches.
    """
    for i in range(len(tau)):
        resisting = springs.damping[i]
        pull = springs.damping[i] * v[i]
        j = springs.spring[i]
        if j >= 0:
            stretch = q[springs.coordinate[j]] - springs.rest[j] + dt * v[i]
            pull = pull + springs.stiffness[j] * stretch
            resisting = resisting + dt * springs.stiffness[j]
        net[i] = tau[i] + drive[i] - bias[i] - pull
        diagonal[i] = armature[i] + dt * resisting + resist[i]


@record
class Loaded:
    """Bodies that wrenches act on.

    link: Their links.
    last: Last degree of freedom that moves the link.
    offset: Of the body's origin in the link's frame [m].
    """

    link: Array[Int]
    last: Array[Int]
    offset: Array[vec3]


@kernel
def apply_wrenches(
    tree: Tree,
    branches: Branches,
    loaded: Loaded,
    wrench: Array[Force],
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    drive: Array[Float],
):
    """Adds what a moment [N m] and a force [N] at a body's origin, in world axes, do to the joints."""
    for i in range(len(loaded.link)):
        link = loaded.link[i]
        arm = p[link] + R[link] @ loaded.offset[i] - p[tree.root[link - 1]]
        push = Force(wrench[i].n + cross(arm, wrench[i].f), wrench[i].f)
        begin = branches.row[loaded.last[i]]
        for t in range(branches.depth[loaded.last[i]] + 1):
            d = branches.above[begin + t]
            drive[d] += push.dot(S[d])


@kernel
def push_joints(tree: Tree, S: Array[Motion], push: Array[Force], drive: Array[Float]):
    """Adds what a moment [N m] about the origin of its tree and a force [N] on every link do to the joints."""
    whole = local(Force, len(push))
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        acting = whole[i + 1] + push[i + 1]
        for d in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            drive[d] += S[d].dot(acting)
        whole[tree.parent[i]] += acting
