"""Force and Hessian of the cost of one contact, for MuJoCo's pyramid and elliptic cone.

A contact has `dim` rows u = J a - a_ref: along the normal, two tangents, and angular ones about the normal and the
tangents.

Pyramid: one edge for each direction of each friction row k, with the cost of a spring that only pushes,

    s = 1/2 D sum over k, +- of min(u_0 +- mu_k u_k, 0)^2                                                    (1)

Elliptic cone [MuJoCo, Friction cones]: with N = mu u_0, T = |(mu_1 u_1, mu_2 u_2, ...)|, and R_k in the ratio that
makes the cone round in these coordinates,

    s = 0                                             N >= mu T       no force: within the dual cone
    s = 1/2 sum of D_k u_k^2                          mu N + T <= 0   within the cone: sticks
    s = 1/2 D_0 / (mu^2 (1 + mu^2)) (N - mu T)^2      else            slides                                 (2)
"""

from __future__ import annotations

from kinema.lang import Array, Float, Int, func, min, record, sqrt

FREE, STICKS, SLIDES = 0, 1, 2


@record
class Cones:
    """Friction cones of contacts, see (1) and (2).

    elliptic: 1 for the elliptic cone, 0 for the pyramid.
    span: Rows of a contact in memory: 3, or 6.
    dim: Rows in use of each candidate: 1, 3, 4 or 6.
    D: 1 / R of each row; of the pyramid, the first number for all edges. Zero where there is no contact.
    mu: At a contact's first row mu of the regularised cone, at the others their coefficients of friction.
    """

    elliptic: Int
    span: Int
    dim: Array[Int]
    D: Array[Float]
    mu: Array[Float]


@func
def zone_of(cones, at, dim, u):
    """FREE, STICKS or SLIDES, with N and T, of an elliptic cone; `at` is the contact's first row."""
    mu = cones.mu[at]
    N, square = mu * u[at], 0.0
    for k in range(at + 1, at + dim):
        part = cones.mu[k] * u[k]
        square = square + part * part
    T = sqrt(square) if square > 0.0 else 0.0
    zone = SLIDES
    if mu * T <= N:
        zone = FREE
    elif mu * N + T <= 0.0:
        zone = STICKS
    return zone, N, T


@func
def put_force(cones, at, dim, u, force):
    """The force -ds/du of each row; rows that are not in use have none."""
    for k in range(at + dim, at + cones.span):
        force[k] = 0.0
    if dim == 1:
        force[at] = -cones.D[at] * min(u[at], 0.0)
    elif cones.elliptic == 0:
        D, total = cones.D[at], 0.0
        for k in range(at + 1, at + dim):
            mu = cones.mu[k]
            plus, minus = min(u[at] + mu * u[k], 0.0), min(u[at] - mu * u[k], 0.0)
            total = total + plus + minus
            force[k] = -D * mu * (plus - minus)
        force[at] = -D * total
    else:
        zone, N, T = zone_of(cones, at, dim, u)
        mu = cones.mu[at]
        slide = -cones.D[at] / (mu * (1.0 + mu * mu)) * (N - mu * T)
        normal, pull = 0.0, 0.0
        if zone == SLIDES:
            normal = slide
            pull = slide / T
        elif zone == STICKS:
            normal = -cones.D[at] * u[at]
        force[at] = normal
        for k in range(at + 1, at + dim):
            rough = -pull * cones.mu[k] * cones.mu[k] * u[k]
            force[k] = -cones.D[k] * u[k] if zone == STICKS else rough


@func
def put_curvature(cones, at, dim, u, W):
    """The Hessian d^2 s / du^2, row by row with `span` entries each, and a number that tells the active set."""
    span, seen = cones.span, 0.0
    for k in range(span * span):
        W[k] = 0.0
    if dim == 1:
        if u[at] < 0.0:
            W[0] = cones.D[at]
            seen = 1.0
    elif cones.elliptic == 0:
        D, total, bit = cones.D[at], 0.0, 1.0
        for k in range(1, dim):
            mu = cones.mu[at + k]
            plus = 1.0 if u[at] + mu * u[at + k] < 0.0 else 0.0
            minus = 1.0 if u[at] - mu * u[at + k] < 0.0 else 0.0
            total = total + plus + minus
            W[k * span + k] = D * mu * mu * (plus + minus)
            W[k] = D * mu * (plus - minus)
            W[k * span] = D * mu * (plus - minus)
            seen = seen + bit * (plus + 2.0 * minus)
            bit = 4.0 * bit
        W[0] = D * total
    else:
        zone, N, T = zone_of(cones, at, dim, u)
        if zone == STICKS:
            for k in range(dim):
                W[k * span + k] = cones.D[at + k]
            seen = 1.0
        elif zone == SLIDES:
            mu = cones.mu[at]
            scale, bend = cones.D[at] / (mu * mu * (1.0 + mu * mu)), mu * N / T
            W[0] = scale * mu * mu
            for k in range(1, dim):
                rough = cones.mu[at + k] * cones.mu[at + k]
                out = rough * u[at + k] / T
                W[k] = -scale * mu * mu * out
                W[k * span] = -scale * mu * mu * out
                for j in range(1, dim):
                    across = cones.mu[at + j] * cones.mu[at + j] * u[at + j] / T
                    own = (mu * mu - bend) * rough if j == k else 0.0
                    W[k * span + j] = scale * (bend * out * across + own)
            seen = 2.0
    return seen
