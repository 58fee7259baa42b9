"""Compliant contact: penalty forces of particles and of links, with smooth-cone friction.

The law is that of gradSim, with four parameters k_e, k_d, k_f and mu [Jatavallabhula et al. 2021, appendix]. For a
particle at depth d > 0 with unit normal n and velocity v, v_n = n.v and v_t = v - n v_n:

    f_n = k_e d - k_d min(v_n, 0)
    f   = n f_n - k_f v_t b / sqrt(b^2 + k_f^2 |v_t|^2 + eps^2),    b = mu f_n

The normal force never pulls, and is damped only while the particle approaches. Friction is a smooth cone instead of
gradSim's clamp per axis, which is `box_force`: -k_f v_t for slow sliding (so sticking contacts creep), -b v_t/|v_t| for
fast sliding, and always below b. eps = 1e-12 N keeps it finite where b and v_t vanish together.

This instantaneous force jumps by k_d |v_n| at touchdown. The total damping then depends on where the first step inside
the surface lands, so the motion is a discontinuous function of the initial state, and even its exact derivative is not
the slope of this function. For this reason the force is a mean over the step that counts the fraction of the step in
contact. With the displacement w = dt |v_n| along the normal in a step, (x)_0^w = min(max(x, 0), w), (x)+ = max(x, 0),

    h = (d + w/2)_0^w,    f_press = k_e (h^2 / (2 w) + (d - w/2)+)      mean over a step centred now: k_e d if d > w/2
    s = (d)_0^w / w,      f_damp  = k_d |v_n| s                         contact fraction of last step, approach
    f_n = f_press + f_damp

Semi-implicit Euler and implicit steps pair a position with the velocity that led to it: the step began at x - dt v, and
half of the next step ends at about x + dt v / 2. So an approach to depth d dissipates exactly the impulse k_d d,
whenever the step begins. Friction acts for the same fraction: k_f s in place of k_f, with
b = mu (k_e ((d)+ - (1 - s) (d)_0^w / 2) + f_damp), the normal force within that fraction, at most mu f_n. During
separation, s = h / w and b = mu f_n. For depths of w and more this is the law above. The mean force is continuous in
positions and velocities; its slopes are at most about k_e, k_d / dt and k_f / dt. Contact begins at a gap of w/2. With
dt = 0 the force is the instantaneous law above.
"""

from kinema.contact.collision.narrow_phase import FAR, Touch
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    clamp,
    cross,
    dot,
    func,
    kernel,
    max,
    record,
    rsqrt,
    vec3,
)
from kinema.math import Force, Motion

TINY_FORCE = 1e-12  # [N], eps of the friction law; its cube must be a float32
TINY_WAY = 1e-12  # [m], the smallest displacement along the normal in a step


@func
def reach_of(v: vec3, dt: Float):
    """Gap [m] below which a point with relative velocity v [m/s] may be in contact in a step: at least dt |v| / 2."""
    return 0.5 * dt * (abs(v.x) + abs(v.y) + abs(v.z))


@func
def normal_force(depth: Float, v_n: Float, dt: Float, k_e: Float, k_d: Float):
    """Normal force [N], the part of it that bounds friction [N], and the fraction of the step with friction [-]."""
    way = max(dt * abs(v_n), TINY_WAY)
    inside = clamp(depth + 0.5 * way, 0.0, way)
    share = inside / way
    force = k_e * (0.5 * inside * share + max(depth - 0.5 * way, 0.0))
    rubs = force
    if v_n < 0.0:
        inside = clamp(depth, 0.0, way)
        share = inside / way
        damped = -k_d * v_n * share
        force = force + damped
        rubs = k_e * (max(depth, 0.0) - 0.5 * inside * (1.0 - share)) + damped
    return force, rubs, share


@func
def penalty_force(depth: Float, n: vec3, v: vec3, dt: Float, k_e: Float, k_d: Float, k_f: Float, mu: Float):
    """Force [N] on a particle at `depth` [m] below a surface with unit normal n (< 0 for a gap) with velocity v [m/s].

    The force is the mean over a step of dt [s]; for dt = 0 the instantaneous force, for depths above 0.
    """
    v_n = dot(n, v)
    v_t = v - n * v_n
    f_n, rubs, share = normal_force(depth, v_n, dt, k_e, k_d)
    b, k = mu * rubs, k_f * share
    slow = k * b * rsqrt(b * b + k * k * dot(v_t, v_t) + TINY_FORCE * TINY_FORCE)
    return n * f_n - v_t * slow


@func
def box_force(depth: Float, n: vec3, v: vec3, dt: Float, k_e: Float, k_d: Float, k_f: Float, mu: Float):
    """`penalty_force` with box friction: -clamp(k_f v_t, -b, b) along each of two axes orthogonal to n.

    The axes follow Duff et al. [2017]: x and y for n = z. They rotate with n, but jump where n.z changes its sign.
    """
    f_n, rubs, share = normal_force(depth, dot(n, v), dt, k_e, k_d)
    b, k = mu * rubs, k_f * share
    side = 1.0 if n.z >= 0.0 else -1.0
    a = -1.0 / (side + n.z)
    one = vec3(1.0 + side * a * n.x * n.x, side * a * n.x * n.y, -side * n.x)
    two = vec3(a * n.x * n.y, side + a * n.y * n.y, -n.y)
    return n * f_n - one * clamp(k * dot(one, v), -b, b) - two * clamp(k * dot(two, v), -b, b)


@record
class Ends:
    """The two links of each candidate, and the last degrees of freedom that move them, -1 for the world."""

    first: Array[Int]
    second: Array[Int]
    first_last: Array[Int]
    second_last: Array[Int]


@record
class LinkLaw:
    """The contact law of links.

    dt: Time over which forces are averaged [s]; 0 for instantaneous forces.
    k_e: Stiffness [N/m].
    k_d: Damping [N s/m].
    k_f: Viscous friction at low sliding speed [N s/m].
    friction: Coefficient of friction mu [-], one per candidate.
    """

    dt: Float
    k_e: Float
    k_d: Float
    k_f: Float
    friction: Array[Float]


@func
def meet(tree, ends, c, point: vec3, p, V):
    """Arms of a point [m] about the origins of both trees, and the relative velocity of the first link there [m/s]."""
    one, two, arm, other = ends.first[c], ends.second[c], point, point
    if one > 0:
        arm = point - p[tree.root[one - 1]]
    if two > 0:
        other = point - p[tree.root[two - 1]]
    return arm, other, V[one].v + cross(V[one].w, arm) - V[two].v - cross(V[two].w, other)


@func
def link_force(tree, ends, touch, law, c, p, V):
    """Whether a candidate is in contact, its force [N] on the first link, its arms [m] about both trees' origins."""
    presses = False
    arm, other, f = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
    if touch.gap[c] < FAR:
        arm, other, v = meet(tree, ends, c, touch.point[c], p, V)
        if touch.gap[c] < reach_of(v, law.dt):
            presses = True
            f = penalty_force(-touch.gap[c], touch.normal[c], v, law.dt, law.k_e, law.k_d, law.k_f, law.friction[c])
    return presses, f, arm, other


@func
def add_push(branches, S, last, push: Force, sign: Float, drive):
    """Add `sign` times the generalised force of a wrench on a link, for the joints above the link."""
    if last >= 0:
        begin = branches.row[last]
        for t in range(branches.depth[last] + 1):
            d = branches.above[begin + t]
            drive[d] += sign * push.dot(S[d])


@kernel
def link_contact(
    tree: Tree,
    branches: Branches,
    ends: Ends,
    touch: Touch,
    law: LinkLaw,
    p: Array[vec3],
    S: Array[Motion],
    V: Array[Motion],
    drive: Array[Float],
):
    """Add the generalised forces [N m, N] of link contacts to `drive`, equal and opposite on both links.

    Forces are means over the law's dt, see `penalty_force`; for dt = 0 they are instantaneous.

    Gradients:
        Exact, of a force that is continuous wherever the candidates are; for dt = 0 it jumps where contact begins.
    """
    for c in range(len(ends.first)):
        presses, f, arm, other = link_force(tree, ends, touch, law, c, p, V)
        if presses:
            add_push(branches, S, ends.first_last[c], Force(cross(arm, f), f), 1.0, drive)
            add_push(branches, S, ends.second_last[c], Force(cross(other, f), f), -1.0, drive)
