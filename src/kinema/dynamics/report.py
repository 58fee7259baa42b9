"""Outputs of a step: copies and derived quantities for reports and sensors."""

from __future__ import annotations

from kinema.dynamics.joints import Loaded
from kinema.dynamics.rnea_crba import Bodies
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, func, kernel, mat33, record, transpose, vec3
from kinema.math import Force, Motion, RigidInertia


@kernel
def report_numbers(numbers: Array[Float], start: Int, out: Array[Float]):
    """Copy values from `start` on."""
    for i in range(len(out)):
        out[i] = numbers[start + i]


@kernel
def report_integers(numbers: Array[Int], out: Array[Int]):
    """Copy integers."""
    for i in range(len(out)):
        out[i] = numbers[i]


@func
def positive_zero(x: Float):
    """x, with 0 for -0: the sign of a zero impulse depends on the other lanes. The derivative is 1."""
    return 0.0 - (0.0 - x)


@kernel
def report_impulses(impulse: Array[Float], start: Int, out: Array[Float]):
    """Copy the impulses of rows, from row `start` on."""
    for i in range(len(out)):
        out[i] = positive_zero(impulse[start + i])


@kernel
def report_contact_impulses(
    impulse: Array[Float], start: Int, triples: Array[Int], equations: Int, surface: Array[Int], out: Array[Float]
):
    """Scatter the impulses of contacts, from row `start` on, to their candidates; zero for the other candidates."""
    for i in range(len(out)):
        out[i] = 0.0
    for c in range(triples[0] - equations):
        for k in range(3):
            out[3 * surface[c] + k] = positive_zero(impulse[start + 3 * c + k])


@kernel
def report_vectors(vectors: Array[vec3], out: Array[vec3]):
    """Copy vectors."""
    for i in range(len(out)):
        out[i] = vectors[i]


@kernel
def report_bodies(
    tree: Tree,
    bodies: Bodies,
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    position: Array[vec3],
    rotation: Array[mat33],
    velocity: Array[Motion],
):
    """Pose of every body [m, -] and the velocity of its origin, in world axes [rad/s, m/s]."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        place = p[link] + R[link] @ bodies.offset[b]
        position[b] = place
        rotation[b] = R[link] @ bodies.rotation[b]
        moving = V[link]
        if link > 0:
            moving = Motion(moving.w, moving.v + cross(moving.w, place - p[tree.root[link - 1]]))
        velocity[b] = moving


@record
class Sites:
    """Frames on links.

    link: Link of each site; 0 for fixed sites.
    offset, rotation: Pose of the site's frame in the link's frame [m, -].
    """

    link: Array[Int]
    offset: Array[vec3]
    rotation: Array[mat33]


@func
def arm_to(tree, p, link, place: vec3):
    """Vector from the origin of the link's tree, or from the world's origin for the world, to a point [m]."""
    arm = place
    if link > 0:
        arm = place - p[tree.root[link - 1]]
    return arm


@func
def rate_of_velocity(A: Motion, V: Motion, arm: vec3):
    """Acceleration of a point of a link from its spatial one, d/dt (v + w x arm) [Featherstone 2008, eq. 2.49]."""
    return A.v + cross(A.w, arm) + cross(V.w, V.v + cross(V.w, arm))


@kernel
def report_sites(
    tree: Tree,
    sites: Sites,
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    position: Array[vec3],
    rotation: Array[mat33],
    velocity: Array[Motion],
):
    """Pose of every site [m, -] and the velocity of its origin, in world axes [rad/s, m/s]."""
    for s in range(len(sites.link)):
        link = sites.link[s]
        place = p[link] + R[link] @ sites.offset[s]
        position[s] = place
        rotation[s] = R[link] @ sites.rotation[s]
        velocity[s] = Motion(V[link].w, V[link].v + cross(V[link].w, arm_to(tree, p, link, place)))


@kernel
def link_accelerations(
    tree: Tree, S: Array[Motion], V: Array[Motion], gravity: vec3, acceleration: Array[Float], A: Array[Motion]
):
    """Spatial acceleration of every link minus gravity, from `acceleration` (dv/dt) [Featherstone 2008, ch. 5]."""
    A[0] = Motion(vec3(0.0, 0.0, 0.0), -gravity)
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        rate = A[up] + V[i + 1].crossm(V[i + 1] - V[up])
        for k in range(d, d + tree.dofs[i]):
            rate = rate + S[k] * acceleration[k]
        A[i + 1] = rate


@kernel
def report_accelerations(
    tree: Tree,
    bodies: Bodies,
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    A: Array[Motion],
    gravity: vec3,
    acceleration: Array[Motion],
):
    """Angular acceleration of every body and the acceleration of its origin, in world axes [rad/s^2, m/s^2]."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        arm = arm_to(tree, p, link, p[link] + R[link] @ bodies.offset[b])
        acceleration[b] = Motion(A[link].w, rate_of_velocity(A[link], V[link], arm) + gravity)


@kernel
def report_imu(
    tree: Tree, sites: Sites, R: Array[mat33], p: Array[vec3], V: Array[Motion], A: Array[Motion], imu: Array[Motion]
):
    """IMU reading at every site, in its axes: angular velocity and specific force [rad/s, m/s^2]."""
    for s in range(len(sites.link)):
        link = sites.link[s]
        inward = transpose(R[link] @ sites.rotation[s])
        arm = arm_to(tree, p, link, p[link] + R[link] @ sites.offset[s])
        imu[s] = Motion(inward @ V[link].w, inward @ rate_of_velocity(A[link], V[link], arm))


@kernel
def loaded_wrenches(
    tree: Tree, loaded: Loaded, wrench: Array[Force], R: Array[mat33], p: Array[vec3], push: Array[Force]
):
    """Add a moment [N m] and a force [N] at each loaded body's origin to the wrench on its link."""
    for i in range(len(loaded.link)):
        link = loaded.link[i]
        arm = arm_to(tree, p, link, p[link] + R[link] @ loaded.offset[i])
        push[link] += Force(wrench[i].n + cross(arm, wrench[i].f), wrench[i].f)


@kernel
def link_wrenches(felt: Array[Force], push: Array[Force]):
    """Add the wrenches of soft matter, or of a user-defined law, to the wrenches on the links."""
    for i in range(len(felt)):
        push[i] += felt[i]


@kernel
def joint_loads(
    tree: Tree,
    V: Array[Motion],
    A: Array[Motion],
    inertia: Array[RigidInertia],
    push: Array[Force],
    p: Array[vec3],
    F: Array[Force],
    load: Array[Force],
):
    """Moment about the link's origin and force that each joint exerts on its link [N m, N].

    It is the wrench that accelerates all links beyond the joint, minus the external wrenches on them.
    """
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        F[i + 1] += inertia[i + 1] @ A[i + 1] + V[i + 1].crossf(inertia[i + 1] @ V[i + 1]) - push[i + 1]
        wrench = F[i + 1]
        F[tree.parent[i]] += wrench
        load[i] = Force(wrench.n - cross(p[i + 1] - p[tree.root[i]], wrench.f), wrench.f)


@kernel
def total_momentum(
    tree: Tree,
    inertia: Array[RigidInertia],
    V: Array[Motion],
    p: Array[vec3],
    about: Array[Float],
    out: Array[Force],
):
    """Momentum of all links: angular about a point [kg m^2/s] and linear [kg m/s], in world axes."""
    for i in range(len(tree.parent)):
        h = inertia[i + 1] @ V[i + 1]
        arm = p[tree.root[i]] - vec3(about[0], about[1], about[2])
        out[0] += Force(h.n + cross(arm, h.f), h.f)
