"""Generalised forces on joints: drives, springs and dampers, and wrenches on bodies."""

from __future__ import annotations

from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, cross, kernel, local, mat33, record, vec3
from kinema.math import Force, Motion


@record
class Springs:
    """Springs of revolute and prismatic joints, and dampers of all joints.

    spring: Index of the spring of each degree of freedom, -1 without a spring (free and ball joints).
    coordinate: Index in q of the coordinate that each spring acts on.
    stiffness: Stiffness of each spring [N m/rad, N/m].
    rest: Coordinate at which each spring has zero force [rad, m].
    damping: Damping of each degree of freedom [N m s/rad, N s/m].
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
    """Net force on each degree of freedom, and the addition to the diagonal of the mass matrix.

    Springs and dampers are implicit: they act at the end of the step, with v' = v + dt a and q' = q + dt v':

        (M + dt d + dt^2 k + resist) a = tau + drive - bias - k (q - rest + dt v) - d v

    So their stiffness does not limit the time step. Actuators and wrenches provide `drive` and `resist`.
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


@kernel
def damped_matrix(
    branches: Branches,
    M: Array[Float],
    damping: Array[Float],
    resist: Array[Float],
    dt: Float,
    damped: Array[Float],
):
    """M + dt (damping + resist), for the velocities after a step with implicit damping alone."""
    for d in range(len(damping)):
        begin, depth = branches.row[d], branches.depth[d]
        for t in range(depth):
            damped[begin + t] = M[begin + t]
        damped[begin + depth] = M[begin + depth] + dt * (damping[d] + resist[d])


@record
class Loaded:
    """Bodies with external wrenches.

    link: Link of each body.
    last: Last degree of freedom that moves the link.
    offset: Position of the body's origin in the link's frame [m].
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
    """Add the generalised forces of a moment [N m] and a force [N] at each body's origin, in world axes."""
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
    """Add the generalised forces of a moment [N m] about the tree's origin and a force [N] on every link."""
    whole = local(Force, len(push))
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        acting = whole[i + 1] + push[i + 1]
        for d in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            drive[d] += S[d].dot(acting)
        whole[tree.parent[i]] += acting
