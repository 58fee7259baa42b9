"""The laws of `scene.py` as Warp kernels, written for Warp's best speed on a CPU.

This makes them longer: columns as vectors instead of matrices, contact fused with the kernel that moves the vertices,
air with the membranes, uniform parameters as scalars, no grid-stride loop.
"""
# No postponed annotations in this file: Warp reads the annotations of kernels.

import functools
from types import SimpleNamespace

from kinema.contact.compliant import TINY_FORCE
from kinema.dynamics.shell import COLLAPSED, EDGE_ON, TINY_SPEED


@functools.cache
def kernels() -> SimpleNamespace:
    """Import Warp quietly and define the kernels."""
    import warp as wp

    wp.config.log_level = wp.LOG_WARNING
    wp.init()
    Floats, Vectors, Pairs = wp.array(dtype=float), wp.array(dtype=wp.vec3), wp.array(dtype=wp.vec2)
    Threes, Fours = wp.array(dtype=wp.vec3i), wp.array(dtype=wp.vec4i)
    Matrices, Planar = wp.array(dtype=wp.mat33), wp.array(dtype=wp.mat22)
    tiny_force, tiny_speed = wp.constant(TINY_FORCE**2), wp.constant(TINY_SPEED**2)
    collapsed, edge_on = wp.constant(COLLAPSED), wp.constant(EDGE_ON**2)

    @wp.kernel(grid_stride=False)
    def solid_forces(
        tets: Fours,
        rest_inverse: Matrices,
        volume: Floats,
        viscosity: float,
        mu: Floats,
        lam: Floats,
        x: Vectors,
        v: Vectors,
        f: Vectors,
    ):
        e = wp.tid()
        corner = tets[e]
        D = rest_inverse[e]
        xa = x[corner[0]]
        xb = x[corner[1]] - xa
        xc = x[corner[2]] - xa
        xd = x[corner[3]] - xa
        va = v[corner[0]]
        vb = v[corner[1]] - va
        vc = v[corner[2]] - va
        vd = v[corner[3]] - va
        # Columns of F, of its cofactors and of dF/dt.
        f0 = xb * D[0, 0] + xc * D[1, 0] + xd * D[2, 0]
        f1 = xb * D[0, 1] + xc * D[1, 1] + xd * D[2, 1]
        f2 = xb * D[0, 2] + xc * D[1, 2] + xd * D[2, 2]
        c0 = wp.cross(f1, f2)
        c1 = wp.cross(f2, f0)
        c2 = wp.cross(f0, f1)
        g0 = vb * D[0, 0] + vc * D[1, 0] + vd * D[2, 0]
        g1 = vb * D[0, 1] + vc * D[1, 1] + vd * D[2, 1]
        g2 = vb * D[0, 2] + vc * D[1, 2] + vd * D[2, 2]
        V = -volume[e]
        stiff = mu[e]
        alpha = 1.0 + 0.75 * stiff / lam[e]
        I_C = wp.dot(f0, f0) + wp.dot(f1, f1) + wp.dot(f2, f2)
        a = V * stiff * (1.0 - 1.0 / (I_C + 1.0))
        b = V * lam[e] * (wp.dot(f0, c0) - alpha)
        # Twice the strain rate, times V eta.
        eta = V * viscosity
        s00 = 2.0 * eta * wp.dot(f0, g0)
        s11 = 2.0 * eta * wp.dot(f1, g1)
        s22 = 2.0 * eta * wp.dot(f2, g2)
        s01 = eta * (wp.dot(f0, g1) + wp.dot(f1, g0))
        s02 = eta * (wp.dot(f0, g2) + wp.dot(f2, g0))
        s12 = eta * (wp.dot(f1, g2) + wp.dot(f2, g1))
        p0 = f0 * (a + s00) + f1 * s01 + f2 * s02 + c0 * b
        p1 = f0 * s01 + f1 * (a + s11) + f2 * s12 + c1 * b
        p2 = f0 * s02 + f1 * s12 + f2 * (a + s22) + c2 * b
        fb = p0 * D[0, 0] + p1 * D[0, 1] + p2 * D[0, 2]
        fc = p0 * D[1, 0] + p1 * D[1, 1] + p2 * D[1, 2]
        fd = p0 * D[2, 0] + p1 * D[2, 1] + p2 * D[2, 2]
        wp.atomic_add(f, corner[1], fb)
        wp.atomic_add(f, corner[2], fc)
        wp.atomic_add(f, corner[3], fd)
        wp.atomic_sub(f, corner[0], fb + fc + fd)

    @wp.kernel(grid_stride=False)
    def cloth_forces(
        triangles: Threes,
        rest_inverse: Planar,
        area: Floats,
        viscosity: float,
        drag: float,
        lift: float,
        wind: wp.vec3,
        mu: Floats,
        lam: Floats,
        x: Vectors,
        v: Vectors,
        f: Vectors,
    ):
        e = wp.tid()
        corner = triangles[e]
        D = rest_inverse[e]
        xa = x[corner[0]]
        xb = x[corner[1]] - xa
        xc = x[corner[2]] - xa
        va = v[corner[0]]
        vb = v[corner[1]]
        vc = v[corner[2]]
        u = wind - (va + vb + vc) * (1.0 / 3.0)
        vb = vb - va
        vc = vc - va
        # Membrane: columns of F and of dF/dt.
        f0 = xb * D[0, 0] + xc * D[1, 0]
        f1 = xb * D[0, 1] + xc * D[1, 1]
        g0 = vb * D[0, 0] + vc * D[1, 0]
        g1 = vb * D[0, 1] + vc * D[1, 1]
        A = -area[e]
        normal = wp.cross(f0, f1)
        n = wp.normalize(normal)
        a = A * mu[e]
        b = A * (lam[e] * (wp.length(normal) - 1.0) - mu[e])
        s00 = a + 2.0 * A * viscosity * wp.dot(f0, g0)
        s11 = a + 2.0 * A * viscosity * wp.dot(f1, g1)
        s01 = A * viscosity * (wp.dot(f0, g1) + wp.dot(f1, g0))
        p0 = f0 * s00 + f1 * s01 + wp.cross(f1, n) * b
        p1 = f0 * s01 + f1 * s11 + wp.cross(n, f0) * b
        fb = p0 * D[0, 0] + p1 * D[0, 1]
        fc = p0 * D[1, 0] + p1 * D[1, 1]
        # Air: the normal of the corners follows from F and is J times as long as at rest.
        across = wp.dot(n, u)
        speed = wp.sqrt(wp.dot(u, u) + tiny_speed)
        seen = wp.sqrt((1.0 - edge_on) * across * across + edge_on * speed * speed)
        pull = u * (drag * seen) + (n * speed - u * (across / speed)) * (lift * across)
        third = pull * (wp.length(normal) * area[e] * (1.0 / 3.0))
        wp.atomic_add(f, corner[1], fb + third)
        wp.atomic_add(f, corner[2], fc + third)
        wp.atomic_sub(f, corner[0], fb + fc - third)

    @wp.kernel(grid_stride=False)
    def hinge_forces(
        hinges: Fours,
        rest_angle: Floats,
        weight: Floats,
        inverse_areas: Pairs,
        bending: float,
        damping: float,
        x: Vectors,
        v: Vectors,
        f: Vectors,
    ):
        h = wp.tid()
        corner = hinges[h]
        xa = x[corner[0]]
        b = x[corner[1]] - xa
        c = x[corner[2]] - xa
        d = x[corner[3]] - xa
        inverse = inverse_areas[h]
        first = wp.cross(b, c) * inverse[0]
        second = wp.cross(d, b) * inverse[1]
        length = wp.length(b)
        e = b / length
        angle = wp.atan2(wp.dot(e, wp.cross(first, second)), wp.dot(first, second))
        one = wp.dot(first, first)
        two = wp.dot(second, second)
        share = 1.0 / (one * two + collapsed)
        q1 = first * (two * share * inverse[0])
        q2 = second * (one * share * inverse[1])
        along_b = q1 * wp.dot(e, c) + q2 * wp.dot(e, d)
        along_c = q1 * -length
        along_d = q2 * -length
        along_a = -(along_b + along_c + along_d)
        va = v[corner[0]]
        rate = (
            wp.dot(along_b, v[corner[1]] - va) + wp.dot(along_c, v[corner[2]] - va) + wp.dot(along_d, v[corner[3]] - va)
        )
        moment = -weight[h] * (bending * wp.sin(0.5 * (angle - rest_angle[h])) + damping * rate)
        wp.atomic_add(f, corner[0], along_a * moment)
        wp.atomic_add(f, corner[1], along_b * moment)
        wp.atomic_add(f, corner[2], along_c * moment)
        wp.atomic_add(f, corner[3], along_d * moment)

    @wp.func
    def contact(depth: float, n: wp.vec3, v: wp.vec3, k_e: float, k_d: float, k_f: float, friction: float):
        v_n = wp.dot(n, v)
        v_t = v - n * v_n
        f_n = k_e * depth - k_d * wp.min(v_n, 0.0)
        b = friction * f_n
        slow = k_f * b / wp.sqrt(b * b + k_f * k_f * wp.dot(v_t, v_t) + tiny_force)
        return n * f_n - v_t * slow

    @wp.kernel(grid_stride=False)
    def advance_on_plane(
        inv_mass: Floats,
        gravity: wp.vec3,
        dt: float,
        normal: wp.vec3,
        offset: float,
        k_e: float,
        k_d: float,
        k_f: float,
        friction: float,
        x: Vectors,
        v: Vectors,
        f: Vectors,
        x_next: Vectors,
        v_next: Vectors,
    ):
        i = wp.tid()
        at = x[i]
        velocity = v[i]
        force = f[i]
        depth = offset - wp.dot(normal, at)
        if depth > 0.0:
            force = force + contact(depth, normal, velocity, k_e, k_d, k_f, friction)
        moved = velocity + (force * inv_mass[i] + gravity) * dt
        v_next[i] = moved
        x_next[i] = at + moved * dt

    @wp.kernel(grid_stride=False)
    def advance_on_ball(
        inv_mass: Floats,
        gravity: wp.vec3,
        dt: float,
        centre: wp.vec3,
        radius: float,
        k_e: float,
        k_d: float,
        k_f: float,
        friction: float,
        x: Vectors,
        v: Vectors,
        f: Vectors,
        x_next: Vectors,
        v_next: Vectors,
    ):
        i = wp.tid()
        at = x[i]
        velocity = v[i]
        force = f[i]
        away = at - centre
        square = wp.dot(away, away)
        if square < radius * radius:
            distance = wp.sqrt(square)
            n = away / distance
            force = force + contact(radius - distance, n, velocity, k_e, k_d, k_f, friction)
        moved = velocity + (force * inv_mass[i] + gravity) * dt
        v_next[i] = moved
        x_next[i] = at + moved * dt

    return SimpleNamespace(
        wp=wp,
        solid_forces=solid_forces,
        cloth_forces=cloth_forces,
        hinge_forces=hinge_forces,
        advance_on_plane=advance_on_plane,
        advance_on_ball=advance_on_ball,
    )
