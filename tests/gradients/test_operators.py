"""Every operator of the language and of kinema.math: values, adjoints and tangents, at every lane width.

A registry names each operator once: its text in the language, and a reference that runs on numpy (values) and on torch
(derivatives). Each operator is a kernel of its own; all are compiled into a few libraries. What is shown at one lane
width holds at all others, because all bits are equal.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import support
from kinema import math as kinema_math
from kinema.lang import Float, Int, dot, func, kernel, mat22, mat33, sin, vec2, vec3, vec4
from kinema.lang.build import compiler
from kinema.lang.emit.simd import PACKET
from kinema.lang.ir.analysis import ELEMENTS, WORLDS
from kinema.lang.language import functions, types
from kinema.lang.language.functions import Intrinsic
from kinema.lang.language.markers import Func
from kinema.math import Dyad, Force, Motion, Quat, RigidInertia, Sym33, SymmetricDyad, Transform

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

N = 19  # elements: at every width full packets and a rest
FILES = 6  # libraries that the kernels are compiled into, side by side

# Lanes, width and bytes of a Float. The first place is compared with the references, the others with the first.
BASE = (ELEMENTS, 4, 8)
OTHERS = [(ELEMENTS, 1, 8), (WORLDS, 4, 8), (ELEMENTS, 2, 8), (ELEMENTS, 8, 8), (ELEMENTS, 16, 8)]
SINGLE, SINGLE_WORLDS = (ELEMENTS, 8, 4), (WORLDS, 8, 4)
# Beyond the width of the hardware gcc needs minutes for the largest operators, which are made of the smaller ones: they
# are compiled for the base, one lane, worlds, and in single precision; and tangents for no more than eight lanes.
LARGE = ("inertias", "symmetric dyads", "dyads")

# What an operator may be off by, in units of the last place of max(1, |result|). All inputs are below 3.
EXACT = 0.0  # one operation of IEEE 754, or several in the order of the reference
FUNCTION = 5.0  # simd_math.hpp promises 4 ulp, numpy is within 1
SHORT = 32.0  # sums of up to six products below 9, each rounded
LONG = 512.0  # products of 6 x 6 matrices, and inverses of matrices with a condition below 30

ADJOINT = 1e-10  # against torch: some thousand ulp of the largest intermediate results, far below any wrong term
DOT_PRODUCT = 1e-10  # tangents against adjoints: the same
STEP, DIFFERENCES = 1e-5, 1e-7  # central differences: STEP^2 / 6 of the third derivative, and eps / STEP of the value


# -- inputs --------------------------------------------------------------------------------------------------------


def off_integers(random, *shape):
    """Numbers in [-2, 2] that keep 0.1 away from all integers, where abs, sign, floor and Int have kinks."""
    return random.integers(-2, 2, shape) + random.uniform(0.1, 0.9, shape)


def well_posed(random, size, *shape):
    """Matrices with a condition below 30."""
    made = random.uniform(-1, 1, (*shape, size, size)) + 2 * np.eye(size)
    assert np.linalg.cond(made).max() < 30
    return made


def rotations(random, count):
    made, _ = np.linalg.qr(random.normal(size=(count, 3, 3)))
    return made * np.linalg.det(made)[:, None, None]


def transforms(random):
    return np.concatenate([rotations(random, N).reshape(N, 9), random.uniform(-1, 1, (N, 3))], 1)


def rigid_inertias(random):
    """Mass, first moments, and moments of inertia that are positive definite about the centre of mass."""
    mass, com = random.uniform(1, 2, (N, 1)), random.uniform(-0.5, 0.5, (N, 3))
    axes, R = random.uniform(0.5, 1.5, (N, 3)), rotations(random, N)
    steiner = np.einsum(
        "n,nij->nij", mass[:, 0], np.einsum("nk,nk,ij->nij", com, com, np.eye(3)) - np.einsum("ni,nj->nij", com, com)
    )
    I = np.einsum("nik,nk,njk->nij", R, axes, R) + steiner
    return np.concatenate([mass, mass * com, I.reshape(N, 9)[:, UPPER]], 1)


def symmetric_dyads(random):
    whole = random.uniform(-0.4, 0.4, (N, 6, 6))
    whole = whole + whole.transpose(0, 2, 1) + 3 * np.eye(6)
    return np.concatenate([b.reshape(N, 9) for b in (whole[:, :3, :3], whole[:, :3, 3:], whole[:, 3:, 3:])], 1)


def dyads(random):
    return blocks_of(np, well_posed(random, 6, N) * 0.7)


def plain(low, high, *shape):
    return lambda random: random.uniform(low, high, (N, *shape))


UPPER, FULL = [0, 1, 2, 4, 5, 8], [0, 1, 2, 1, 3, 4, 2, 4, 5]  # Sym33 out of nine entries, and back

# Name in the registry -> type and contents.
INPUTS = {
    "a": (Float, lambda random: off_integers(random, N)),
    "b": (Float, lambda random: off_integers(random, N)),
    "c": (Float, lambda random: off_integers(random, N)),
    "p": (Float, plain(0.2, 3.0)),
    "u": (Float, plain(-0.95, 0.95)),
    "i": (Int, lambda random: random.integers(-9, 9, N)),
    "j": (Int, lambda random: random.choice([-5, -3, -1, 1, 2, 4, 7], N)),
    "x2": (vec2, plain(-1.5, 1.5, 2)),
    "y2": (vec2, plain(-1.5, 1.5, 2)),
    "x": (vec3, plain(-1.5, 1.5, 3)),
    "y": (vec3, plain(-1.5, 1.5, 3)),
    "z": (vec3, plain(-1.5, 1.5, 3)),
    "x4": (vec4, plain(-1.5, 1.5, 4)),
    "y4": (vec4, plain(-1.5, 1.5, 4)),
    "A2": (mat22, lambda random: well_posed(random, 2, N)),
    "B2": (mat22, lambda random: well_posed(random, 2, N)),
    "A": (mat33, lambda random: well_posed(random, 3, N)),
    "B": (mat33, lambda random: well_posed(random, 3, N)),
    "C": (mat33, lambda random: well_posed(random, 3, N)),
    "q": (Quat, plain(-1.0, 1.0, 4)),
    "k": (Quat, plain(-1.0, 1.0, 4)),
    "m": (Motion, plain(-1.5, 1.5, 6)),
    "l": (Motion, plain(-1.5, 1.5, 6)),
    "f": (Force, plain(-1.5, 1.5, 6)),
    "g": (Force, plain(-1.5, 1.5, 6)),
    "X": (Transform, transforms),
    "Y": (Transform, transforms),
    "S": (Sym33, plain(-1.5, 1.5, 6)),
    "T": (Sym33, plain(-1.5, 1.5, 6)),
    "R": (RigidInertia, rigid_inertias),
    "P": (RigidInertia, rigid_inertias),
    "H": (SymmetricDyad, symmetric_dyads),
    "G": (SymmetricDyad, symmetric_dyads),
    "D": (Dyad, dyads),
    "O": (Dyad, dyads),
}
REAL = [name for name, (kind, _) in INPUTS.items() if kind is not Int]


# -- references: functions of (xp, arrays), where xp is numpy or torch -----------------------------------------------


def by_unit_inertias(xp, m, l):
    """m.(I l) for the ten inertias I with a single number 1: the product is linear in I."""
    zero = 0.0 * m[:, 0]
    units = [xp.stack([zero + float(j == k) for j in range(10)], -1) for k in range(10)]
    return xp.stack([dots(xp, m, times(xp, of_rigid(xp, unit), l)) for unit in units], -1)


LEVI_CIVITA = np.zeros((3, 3, 3))
LEVI_CIVITA[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = 1
LEVI_CIVITA[[0, 2, 1], [2, 1, 0], [1, 0, 2]] = -1
# (p q)_i = HAMILTON_ijk p_j q_k, from the table of i j = k.
HAMILTON = np.zeros((4, 4, 4))
HAMILTON[0] = np.diag([1, -1, -1, -1])
HAMILTON[1:, 0, 1:] = HAMILTON[1:, 1:, 0] = np.eye(3)
HAMILTON[1:, 1:, 1:] = LEVI_CIVITA
CONJUGATE = np.array([1.0, -1, -1, -1])


def sums(xp, subscripts, *arrays):
    """einsum, for constants of numpy too."""
    return xp.einsum(subscripts, *[array if isinstance(array, torch.Tensor) else xp.asarray(array) for array in arrays])


def dots(xp, a, b):
    return sums(xp, "nk,nk->n", a, b)


def crosses(xp, a, b):
    return sums(xp, "ijk,nj,nk->ni", LEVI_CIVITA, a, b)


def skews(xp, a):
    return sums(xp, "ikj,nk->nij", LEVI_CIVITA, a)


def times(xp, M, v):
    return sums(xp, "nij,nj->ni", M, v)


def transposed(xp, M):
    return sums(xp, "nij->nji", M)


def unit(xp, a):
    return a / xp.sqrt(dots(xp, a, a))[:, None]


def quat_product(xp, p, q):
    return sums(xp, "ijk,nj,nk->ni", HAMILTON, p, q)


def quat_of_rotation(xp, r):
    half = 0.5 * xp.sqrt(dots(xp, r, r))[:, None]
    return xp.concatenate([xp.cos(half), 0.5 * r * xp.sin(half) / half], -1)


def quat_of_matrix(xp, q):
    """The unit quaternion of the rotation by q: its largest component is positive, w if it is above a half."""
    u = unit(xp, q)
    largest = xp.argmax(abs(u[:, 1:]), 1)
    lead = xp.where(4 * u[:, 0] ** 2 > 1, u[:, 0], u[xp.arange(len(u)), 1 + largest])
    return u * xp.sign(lead)[:, None]


def rotation_of_quat(xp, q):
    K = skews(xp, q[:, 1:])
    return xp.asarray(np.eye(3)) + 2 * q[:, :1, None] * K + 2 * K @ K


def rotated(xp, q, x, way=1):
    t = 2 * crosses(xp, q[:, 1:], x)
    return x + way * q[:, :1] * t + crosses(xp, q[:, 1:], t)


def six(xp, a, b, c, d):
    """6 x 6 matrices from blocks."""
    return xp.concatenate([xp.concatenate([a, b], -1), xp.concatenate([c, d], -1)], -2)


def blocks_of(xp, M):
    """The four blocks of 6 x 6 matrices, flat: the numbers of a Dyad."""
    parts = [M[:, :3, :3], M[:, :3, 3:], M[:, 3:, :3], M[:, 3:, 3:]]
    return xp.concatenate([b.reshape(-1, 9) for b in parts], -1)


def symmetric_blocks_of(xp, M):
    return xp.concatenate([M[:, :3, :3].reshape(-1, 9), M[:, :3, 3:].reshape(-1, 9), M[:, 3:, 3:].reshape(-1, 9)], -1)


def thirds(numbers):
    return [numbers[:, k : k + 9].reshape(-1, 3, 3) for k in range(0, numbers.shape[1], 9)]


def of_dyad(xp, D):
    return six(xp, *thirds(D))


def of_symmetric(xp, H):
    I, H12, M = thirds(H)
    return six(xp, I, H12, transposed(xp, H12), M)


def of_transform(xp, X):
    E = X[:, :9].reshape(-1, 3, 3)
    return six(xp, E, 0 * E, -E @ skews(xp, X[:, 9:]), E)


def of_inverse_transform(xp, X):
    back = transposed(xp, X[:, :9].reshape(-1, 3, 3))
    return six(xp, back, 0 * back, skews(xp, X[:, 9:]) @ back, back)


def full(S):
    return S[:, FULL].reshape(-1, 3, 3)


def of_rigid(xp, R):
    h = skews(xp, R[:, 1:4])
    return six(xp, full(R[:, 4:]), h, -h, R[:, :1, None] * xp.asarray(np.eye(3)))


def motion_cross(xp, m):
    w, v = skews(xp, m[:, :3]), skews(xp, m[:, 3:])
    return six(xp, w, 0 * w, v, w)


def solved(xp, M, f):
    return xp.linalg.solve(M, f[:, :, None])[:, :, 0]


def transform_product(xp, X, Y):
    E, F = X[:, :9].reshape(-1, 3, 3), Y[:, :9].reshape(-1, 3, 3)
    return xp.concatenate([(E @ F).reshape(-1, 9), Y[:, 9:] + times(xp, transposed(xp, F), X[:, 9:])], -1)


def transform_inverse(xp, X):
    E = X[:, :9].reshape(-1, 3, 3)
    return xp.concatenate([transposed(xp, E).reshape(-1, 9), -times(xp, E, X[:, 9:])], -1)


def rigid_shift(xp, R, X):
    """The ten numbers of X^T I X [Featherstone 2008, eq. 2.66]."""
    E, r, mass = X[:, :9].reshape(-1, 3, 3), X[:, 9:], R[:, :1]
    g = times(xp, transposed(xp, E), R[:, 1:4])
    h = g + mass * r
    K = skews(xp, r)
    I = transposed(xp, E) @ full(R[:, 4:]) @ E - K @ skews(xp, g) - skews(xp, h) @ K
    return xp.concatenate([mass, h, I.reshape(-1, 9)[:, UPPER]], -1)


def steiner(xp, x, y):
    both = -0.5 * (skews(xp, x) @ skews(xp, y) + skews(xp, y) @ skews(xp, x))
    return both.reshape(-1, 9)[:, UPPER]


def shifted(xp, M, X):
    """X^T M X."""
    return transposed(xp, of_transform(xp, X)) @ M @ of_transform(xp, X)


def dyad_mul_inv(xp, D, m):
    """The printed eq. 44."""
    a, b, c, d = (transposed(xp, block) for block in thirds(D))
    return times(xp, six(xp, a, b, c, d), m)


# -- the registry --------------------------------------------------------------------------------------------------


@dataclass
class Operator:
    """An operator: its text in the language, its reference, and what it may be off by."""

    name: str
    text: str
    reference: object
    ulps: float

    @cached_property
    def inputs(self):
        return list(inspect.signature(self.reference).parameters)[1:]


GROUPS: dict[str, dict[str, Operator]] = {}


def declare(group, ulps, **operators):
    made = {name: Operator(name, text, reference, ulps) for name, (text, reference) in operators.items()}
    GROUPS.setdefault(group, {}).update(made)


@func
def energy(x, y):
    """A function for grad: sin(x.y) + |x|^2 / 2."""
    return sin(dot(x, y)) + 0.5 * dot(x, x)


declare(
    "arithmetic",
    EXACT,
    add=("a + b", lambda xp, a, b: a + b),
    sub=("a - b", lambda xp, a, b: a - b),
    mul=("a * b", lambda xp, a, b: a * b),
    div=("a / b", lambda xp, a, b: a / b),
    neg=("-a", lambda xp, a: -a),
    pos=("+a", lambda xp, a: a),
    add_constant=("a + 2", lambda xp, a: a + 2),
    constant_over=("1 / a", lambda xp, a: 1 / a),
    square=("a ** 2", lambda xp, a: a * a),
    cube=("a ** 3", lambda xp, a: a * a * a),
    inverse_square=("a ** -2", lambda xp, a: 1 / (a * a)),
    power_zero=("a * b ** 0", lambda xp, a, b: a * b**0),
    root=("p ** 0.5", lambda xp, p: xp.sqrt(p)),
    sqrt=("sqrt(p)", lambda xp, p: xp.sqrt(p)),
    rsqrt=("rsqrt(p)", lambda xp, p: 1 / xp.sqrt(p)),
    abs=("abs(a)", lambda xp, a: xp.abs(a)),
    sign=("sign(a) * b", lambda xp, a, b: xp.sign(a) * b),
    floor=("floor(a) * b", lambda xp, a, b: xp.floor(a) * b),
    detach=("detach(floor(a)) * b", lambda xp, a, b: xp.floor(a) * b),  # differences see no other
    everywhere=("select(everywhere(a > 100.0), b, a)", lambda xp, a, b: a),
    min=("min(a, b)", lambda xp, a, b: xp.minimum(a, b)),
    max=("max(a, b)", lambda xp, a, b: xp.maximum(a, b)),
    min3=("min(a, b, c)", lambda xp, a, b, c: xp.minimum(xp.minimum(a, b), c)),
    max3=("max(a, b, c)", lambda xp, a, b, c: xp.maximum(xp.maximum(a, b), c)),
    clamp=("clamp(a, -0.75, 0.5)", lambda xp, a: xp.clip(a, -0.75, 0.5)),
    clamp_to=("clamp(a, -p, p)", lambda xp, a, p: xp.minimum(xp.maximum(a, -p), p)),
    less=("select(a < b, a, c)", lambda xp, a, b, c: xp.where(a < b, a, c)),
    less_equal=("select(a <= b, a, c)", lambda xp, a, b, c: xp.where(a <= b, a, c)),
    greater=("select(a > b, a, c)", lambda xp, a, b, c: xp.where(a > b, a, c)),
    greater_equal=("select(a >= b, a, c)", lambda xp, a, b, c: xp.where(a >= b, a, c)),
    equal=("select(a == b, a, c)", lambda xp, a, b, c: xp.where(a == b, a, c)),
    not_equal=("select(a != b, a, c)", lambda xp, a, b, c: xp.where(a != b, a, c)),
    conditional=("a if a < b else b * c", lambda xp, a, b, c: xp.where(a < b, a, b * c)),
    branch=("sin(a) if a < b else sqrt(p)", lambda xp, a, b, p: xp.where(a < b, xp.sin(a), xp.sqrt(p))),
    between=("1.0 if -1.0 < a < 1.0 else 0.0", lambda xp, a: xp.where((a > -1) & (a < 1), 1.0, 0.0) + 0 * a),
    both=("select(a < b and b < c, a, b)", lambda xp, a, b, c: xp.where((a < b) & (b < c), a, b)),
    either=("select(a < b or b < c, a, b)", lambda xp, a, b, c: xp.where((a < b) | (b < c), a, b)),
    inverted=("select(not a < b, a, b)", lambda xp, a, b: xp.where(a < b, b, a)),
    # Integers: the quotient is rounded down and the rest has the sign of the divisor, as in Python.
    int_add=("Float(i + j)", lambda xp, i, j: 1.0 * (i + j)),
    int_sub=("Float(i - 2 * j)", lambda xp, i, j: 1.0 * (i - 2 * j)),
    int_neg=("Float(-i)", lambda xp, i: -1.0 * i),
    int_div=("Float(i // j)", lambda xp, i, j: 1.0 * xp.floor_divide(i, j)),
    int_mod=("Float(i % j)", lambda xp, i, j: 1.0 * xp.remainder(i, j)),
    int_div_constant=("Float(i // 4 + i % 4)", lambda xp, i: 1.0 * (xp.floor_divide(i, 4) + xp.remainder(i, 4))),
    int_true_div=("i / j", lambda xp, i, j: (1.0 * i) / (1.0 * j)),
    int_min=("Float(min(i, j))", lambda xp, i, j: 1.0 * xp.minimum(i, j)),
    int_max=("Float(max(i, 2))", lambda xp, i: 1.0 * xp.clip(i, 2, 99)),
    int_abs=("Float(abs(i))", lambda xp, i: 1.0 * xp.abs(i)),
    int_compare=("a if i < j else b", lambda xp, a, b, i, j: xp.where(i < j, a, b)),
    int_equal=("a if i % 3 == 1 else b", lambda xp, a, b, i: xp.where(xp.remainder(i, 3) == 1, a, b)),
    int_times=("a * i", lambda xp, a, i: a * (1.0 * i)),
    to_int=("Float(Int(a)) * b", lambda xp, a, b: xp.trunc(a) * b),
    float_of_int=("float(int(a * 4.0))", lambda xp, a: xp.trunc(4 * a)),
    shared=("a * shared(3)", lambda xp, a: 3.0 * a),
    uniform=("a * uniform(e // 16)", lambda xp, a: a * xp.asarray(1.0 * (np.arange(N) // 16))),
)
GROUPS["arithmetic"]["branch"].ulps = FUNCTION
declare(
    "functions",
    FUNCTION,
    sin=("sin(3.0 * a)", lambda xp, a: xp.sin(3 * a)),
    cos=("cos(3.0 * a)", lambda xp, a: xp.cos(3 * a)),
    tan=("tan(u)", lambda xp, u: xp.tan(u)),
    asin=("asin(u)", lambda xp, u: xp.arcsin(u)),
    acos=("acos(u)", lambda xp, u: xp.arccos(u)),
    atan2=("atan2(a, b)", lambda xp, a, b: xp.arctan2(a, b)),
    exp=("exp(a)", lambda xp, a: xp.exp(a)),
    log=("log(p)", lambda xp, p: xp.log(p)),
    pow=("pow(p, a)", lambda xp, p, a: p**a),
    power=("p ** 1.5", lambda xp, p: p**1.5),
    tanh=("tanh(a)", lambda xp, a: xp.tanh(a)),
    sigmoid=("sigmoid(a)", lambda xp, a: 1 / (1 + xp.exp(-a))),
)
declare(
    "vectors",
    EXACT,
    vec_add=("x + y", lambda xp, x, y: x + y),
    vec_sub=("x2 - y2", lambda xp, x2, y2: x2 - y2),
    vec_neg=("-x4", lambda xp, x4: -x4),
    vec_scale=("a * x", lambda xp, a, x: a[:, None] * x),
    vec_scaled=("x4 * a", lambda xp, a, x4: a[:, None] * x4),
    vec_div=("x / p", lambda xp, p, x: x / p[:, None]),
    vec_select=("select(a < p, x, y)", lambda xp, a, p, x, y: xp.where((a < p)[:, None], x, y)),
    components=("vec3(x.z, x[0], x4.w)", lambda xp, x, x4: xp.stack([x[:, 2], x[:, 0], x4[:, 3]], -1)),
)
declare(
    "vectors",
    SHORT,
    dot=("dot(x, y)", lambda xp, x, y: dots(xp, x, y)),
    dot2=("dot(x2, y2)", lambda xp, x2, y2: dots(xp, x2, y2)),
    dot4=("dot(x4, y4)", lambda xp, x4, y4: dots(xp, x4, y4)),
    cross=("cross(x, y)", lambda xp, x, y: crosses(xp, x, y)),
    norm=("norm(x)", lambda xp, x: xp.sqrt(dots(xp, x, x))),
    norm4=("norm(x4)", lambda xp, x4: xp.sqrt(dots(xp, x4, x4))),
    normalize=("normalize(x)", lambda xp, x: unit(xp, x)),
    normalize2=("normalize(x2)", lambda xp, x2: unit(xp, x2)),
    grad=("grad(energy)(x, y)", lambda xp, x, y: xp.cos(dots(xp, x, y))[:, None] * y + x),
    grad_second=("grad(energy, 1)(x, y)", lambda xp, x, y: xp.cos(dots(xp, x, y))[:, None] * x),
)
declare(
    "matrices",
    EXACT,
    mat_add=("A + B", lambda xp, A, B: A + B),
    mat_sub=("A2 - B2", lambda xp, A2, B2: A2 - B2),
    mat_neg=("-A2", lambda xp, A2: -A2),
    mat_scale=("a * A", lambda xp, a, A: a[:, None, None] * A),
    mat_div=("A2 / p", lambda xp, p, A2: A2 / p[:, None, None]),
    entry=("A[1, 2]", lambda xp, A: A[:, 1, 2]),
    transpose=("transpose(A)", lambda xp, A: transposed(xp, A)),
    transpose2=("transpose(A2)", lambda xp, A2: transposed(xp, A2)),
    rows=("rows(x, y, z)", lambda xp, x, y, z: xp.stack([x, y, z], -2)),
    columns=("columns(x, y, z)", lambda xp, x, y, z: xp.stack([x, y, z], -1)),
    rows_of=("rows_of(A)[1]", lambda xp, A: A[:, 1]),
    columns_of=("columns_of(A)[2]", lambda xp, A: A[:, :, 2]),
    identity22=("identity22(a)", lambda xp, a: sums(xp, "n,ij->nij", a, np.eye(2))),
    identity33=("identity33(a)", lambda xp, a: sums(xp, "n,ij->nij", a, np.eye(3))),
    skew=("skew(x)", lambda xp, x: skews(xp, x)),
    outer=("outer(x, y)", lambda xp, x, y: sums(xp, "ni,nj->nij", x, y)),
    outer2=("outer(x2, y2)", lambda xp, x2, y2: sums(xp, "ni,nj->nij", x2, y2)),
)
declare(
    "matrices",
    SHORT,
    mat_vec=("A @ x", lambda xp, A, x: times(xp, A, x)),
    mat_vec2=("A2 @ x2", lambda xp, A2, x2: times(xp, A2, x2)),
    mat_mat=("A @ B", lambda xp, A, B: A @ B),
    mat_mat2=("A2 @ B2", lambda xp, A2, B2: A2 @ B2),
    trace=("trace(A)", lambda xp, A: sums(xp, "nii->n", A)),
    trace2=("trace(A2)", lambda xp, A2: sums(xp, "nii->n", A2)),
    ddot=("ddot(A, B)", lambda xp, A, B: sums(xp, "nij,nij->n", A, B)),
    ddot2=("ddot(A2, B2)", lambda xp, A2, B2: sums(xp, "nij,nij->n", A2, B2)),
    det=("det(A)", lambda xp, A: xp.linalg.det(A)),
    det2=("det(A2)", lambda xp, A2: xp.linalg.det(A2)),
)
declare(
    "matrices",
    LONG,
    inverse=("inverse(A)", lambda xp, A: xp.linalg.inv(A)),
    inverse2=("inverse(A2)", lambda xp, A2: xp.linalg.inv(A2)),
    three_matrices=("A @ B @ C", lambda xp, A, B, C: A @ B @ C),
    congruence=("congruence(A, B)", lambda xp, A, B: transposed(xp, A) @ B @ A),
)
declare(
    "quaternions",
    SHORT,
    quat_linear=("a * (q + k) - (-q) * p", lambda xp, a, p, q, k: a[:, None] * (q + k) + q * p[:, None]),
    quat_div=("q / p", lambda xp, p, q: q / p[:, None]),
    quat_mul=("q @ k", lambda xp, q, k: quat_product(xp, q, k)),
    quat_mul_vec=("q.mul_vec(x)", lambda xp, q, x: sums(xp, "ijk,nj,nk->ni", HAMILTON[:, :, 1:], q, x)),
    quat_dot=("q.dot(k)", lambda xp, q, k: dots(xp, q, k)),
    quat_conjugate=("q.conjugate()", lambda xp, q: q * xp.asarray(CONJUGATE)),
    quat_inverse=("q.inverse()", lambda xp, q: q * xp.asarray(CONJUGATE) / dots(xp, q, q)[:, None]),
    quat_normalized=("q.normalized()", lambda xp, q: unit(xp, q)),
    quat_rotate=("q.rotate(x)", lambda xp, q, x: rotated(xp, q, x)),
    quat_rotate_inverse=("q.rotate_inverse(x)", lambda xp, q, x: rotated(xp, q, x, -1)),
    quat_matrix=("q.matrix()", lambda xp, q: rotation_of_quat(xp, q)),
    quat_integrate=("q.integrate(x, p)", lambda xp, q, x, p: quat_product(xp, q, quat_of_rotation(xp, p[:, None] * x))),
    quat_exp=("quat_exp(x)", lambda xp, x: quat_of_rotation(xp, x)),
    quat_exp_small=("quat_exp(1e-3 * x)", lambda xp, x: quat_of_rotation(xp, 1e-3 * x)),
    quat_from_axis_angle=(
        "quat_from_axis_angle(x, a)",
        lambda xp, x, a: xp.concatenate([xp.cos(0.5 * a)[:, None], xp.sin(0.5 * a)[:, None] * x], -1),
    ),
    quat_from_matrix=("quat_from_matrix(q.normalized().matrix())", lambda xp, q: quat_of_matrix(xp, q)),
    quat_identity=("quat_identity() * a", lambda xp, a: sums(xp, "n,i->ni", a, np.eye(4)[0])),
    cos_sinc=(
        "cos_sinc(p)[0] * a + cos_sinc(p)[1]",
        lambda xp, p, a: xp.cos(xp.sqrt(p)) * a + xp.sin(xp.sqrt(p)) / xp.sqrt(p),
    ),
)
# The results of what follows have up to 36 numbers; where another operator takes them they are shown through that one.
declare(
    "spatial",
    SHORT,
    motion_linear=("a * (m + l) - (-m) * p", lambda xp, a, p, m, l: a[:, None] * (m + l) + m * p[:, None]),
    motion_div=("m / p", lambda xp, p, m: m / p[:, None]),
    motion_dot=("m.dot(f)", lambda xp, m, f: dots(xp, m, f)),
    motion_crossm=("m.crossm(l)", lambda xp, m, l: times(xp, motion_cross(xp, m), l)),
    motion_crossf=("m.crossf(f)", lambda xp, m, f: -times(xp, transposed(xp, motion_cross(xp, m)), f)),
    force_linear=("a * (f + g) - (-f) * p", lambda xp, a, p, f, g: a[:, None] * (f + g) + f * p[:, None]),
    force_div=("f / p", lambda xp, p, f: f / p[:, None]),
    force_dot=("f.dot(m)", lambda xp, m, f: dots(xp, m, f)),
    transform_apply=("X.apply(m)", lambda xp, X, m: times(xp, of_transform(xp, X), m)),
    transform_apply_inverse=("X.apply_inverse(m)", lambda xp, X, m: times(xp, of_inverse_transform(xp, X), m)),
    transform_apply_transpose=(
        "X.apply_transpose(f)",
        lambda xp, X, f: times(xp, transposed(xp, of_transform(xp, X)), f),
    ),
    transform_apply_inverse_transpose=(
        "X.apply_inverse_transpose(f)",
        lambda xp, X, f: times(xp, transposed(xp, of_inverse_transform(xp, X)), f),
    ),
    transform_mul=("X @ Y", lambda xp, X, Y: transform_product(xp, X, Y)),
    transform_inverse=("X.inverse()", lambda xp, X: transform_inverse(xp, X)),
)
declare(
    "inertias",
    LONG,
    sym_linear=(
        "(a * (S + T) - S * p) @ x",
        lambda xp, a, p, S, T, x: times(xp, full(a[:, None] * (S + T) - S * p[:, None]), x),
    ),
    sym_matrix=("S.matrix()", lambda xp, S: full(S)),
    sym_congruence=(
        "S.congruence(A)",
        lambda xp, S, A: (transposed(xp, A) @ full(S) @ A).reshape(-1, 9)[:, UPPER],
    ),
    sym_parallel_axis=("sym_parallel_axis(x, y)", lambda xp, x, y: steiner(xp, x, y)),
    rigid_linear=("a * (R + P) + R * p", lambda xp, a, p, R, P: a[:, None] * (R + P) + R * p[:, None]),
    rigid_mul=("R @ m", lambda xp, R, m: times(xp, of_rigid(xp, R), m)),
    rigid_solve=("R.solve(f)", lambda xp, R, f: solved(xp, of_rigid(xp, R), f)),
    rigid_shift=("R.shift(X)", lambda xp, R, X: rigid_shift(xp, R, X)),
    rigid_dyad=("R.dyad() @ m", lambda xp, R, m: times(xp, of_rigid(xp, R), m)),
    rigid_inertia=(
        "rigid_inertia(p, x, S)",
        lambda xp, p, x, S: xp.concatenate([p[:, None], p[:, None] * x, S + p[:, None] * steiner(xp, x, x)], -1),
    ),
    product_cotangent=("product_cotangent(m, l)", lambda xp, m, l: by_unit_inertias(xp, m, l)),
)
declare(
    "symmetric dyads",
    LONG,
    symmetric_linear=(
        "(a * (H + G) - H * p + G / p) @ m",
        lambda xp, a, p, H, G, m: times(
            xp, of_symmetric(xp, a[:, None] * (H + G) - H * p[:, None] + G / p[:, None]), m
        ),
    ),
    symmetric_solve=("H.solve(f)", lambda xp, H, f: solved(xp, of_symmetric(xp, H), f)),
    symmetric_shift=(
        "H.shift(X) @ m",
        lambda xp, H, X, m: times(
            xp, of_symmetric(xp, symmetric_blocks_of(xp, shifted(xp, of_symmetric(xp, H), X))), m
        ),
    ),
    symmetric_dyad=("H.dyad() @ m", lambda xp, H, m: times(xp, of_symmetric(xp, H), m)),
    symmetric_outer=("symmetric_outer(f) @ m", lambda xp, f, m: f * dots(xp, f, m)[:, None]),
)
declare(
    "dyads",
    LONG,
    dyad_linear=(
        "(a * (D + O) - D * p + O / p) @ m",
        lambda xp, a, p, D, O, m: times(xp, of_dyad(xp, a[:, None] * (D + O) - D * p[:, None] + O / p[:, None]), m),
    ),
    dyad_mul=("D @ m", lambda xp, D, m: times(xp, of_dyad(xp, D), m)),
    dyad_mul_inv=("D.mul_inv(m)", lambda xp, D, m: dyad_mul_inv(xp, D, m)),
    dyad_solve=("D.solve(f)", lambda xp, D, f: solved(xp, of_dyad(xp, D), f)),
    dyad_transpose=("D.transpose() @ m", lambda xp, D, m: times(xp, transposed(xp, of_dyad(xp, D)), m)),
    dyad_multiply=("D.multiply(O) @ m", lambda xp, D, O, m: times(xp, of_dyad(xp, D) @ of_dyad(xp, O), m)),
    dyad_congruence=(
        "D.congruence(dyad_of_transform(X)) @ m",
        lambda xp, D, X, m: times(xp, shifted(xp, of_dyad(xp, D), X), m),
    ),
    dyad_shift=("D.shift(X) @ m", lambda xp, D, X, m: times(xp, shifted(xp, of_dyad(xp, D), X), m)),
    dyad_outer=("dyad_outer(f, g) @ m", lambda xp, f, g, m: f * dots(xp, g, m)[:, None]),
    dyad_of_transform=("dyad_of_transform(X) @ m", lambda xp, X, m: times(xp, of_transform(xp, X), m)),
)
OPERATORS = {name: operator for group in GROUPS.values() for name, operator in group.items()}


# -- a kernel for each operator ------------------------------------------------------------------------------------

LANGUAGE = {name: getattr(functions, name) for name in functions.__all__}
LANGUAGE |= {name: getattr(types, name) for name in types.__all__}
LANGUAGE |= {name: getattr(kinema_math, name) for name in kinema_math.__all__}
LANGUAGE["energy"] = energy


def numbers(kind):
    return len(types.flatten(kind))


def contents(name):
    """Values of an input, shape (N, numbers)."""
    random = np.random.default_rng(list(map(ord, name)))
    return np.asarray(INPUTS[name][1](random)).reshape(N, -1)


def plain_value(text, inputs):
    """A text of the language as plain Python, at the fourth element."""
    given = {"e": 3}
    for name in inputs:
        kind, array = INPUTS[name][0], contents(name)[3]
        given[name] = int(array[0]) if kind is Int else types.from_scalars(kind, iter(array))
    return eval(text, {**LANGUAGE, **given})


@dataclass
class Subject:
    """The kernel of an operator and its emitted forms."""

    name: str
    text: str
    inputs: list[str]
    forms: dict[tuple, support.Emission] = field(default_factory=dict)

    @cached_property
    def real(self):
        return [n for n in self.inputs if INPUTS[n][0] is not Int]

    @cached_property
    def output(self):
        """The type of the result, found in plain Python."""
        value = plain_value(self.text, self.inputs)
        return type(value) if isinstance(value, types.Value) else Float

    def write(self, folder):
        """The kernel, in a file because the compiler reads its source."""
        arguments = [f"in_{n}: Array[{INPUTS[n][0].__name__}]" for n in self.inputs]
        lines = [f"def {self.name}(e: Index, {', '.join(arguments)}, out: Array[{self.output.__name__}]):"]
        lines += [f"    {n} = in_{n}[e]" for n in self.inputs]
        lines += [f"    out[e] = {self.text}"]
        file = folder / f"{self.name}.py"
        file.write_text("\n".join(lines) + "\n")
        spec = importlib.util.spec_from_file_location(f"operators_{self.name}", file)
        module = importlib.util.module_from_spec(spec)
        vars(module).update(LANGUAGE)
        spec.loader.exec_module(module)
        return kernel(getattr(module, self.name))

    def emit(self, made, batch, places, forms):
        wanted = frozenset(["out", *(f"in_{n}" for n in self.real)])
        derive = {
            "forward": made.forward,
            "adjoint": lambda: made.adjoint(wanted),
            "tangent": lambda: made.tangent(wanted),
        }
        # As programs place them: parameters in packets, results as they are.
        layouts = {f"in_{n}": PACKET for n in self.inputs if numbers(INPUTS[n][0]) > 1}
        for place in places:
            for form in forms:
                if form == "forward" or self.real:
                    self.forms[form, place] = batch.add(derive[form](), layouts, *place)

    def run(self, form, place, worlds):
        """Run a form on worlds of inputs (and cotangents, tangents) by name; returns the arrays afterwards."""
        count = len(worlds[0][f"in_{self.inputs[0]}"])
        out = np.zeros((count, numbers(self.output)))
        given = []
        for world in worlds:
            zeros = {f"adj_in_{n}": np.zeros_like(world[f"in_{n}"]) for n in self.real}
            given.append({"out": out, "tan_out": out, **zeros, **world})
        return self.forms[form, place](given, count)

    def values(self, place, worlds):
        return [made["out"] for made in self.run("forward", place, worlds)]

    def gradients(self, place, worlds, seeds):
        given = [{**world, "adj_out": seed} for world, seed in zip(worlds, seeds, strict=True)]
        return [{n: made[f"adj_in_{n}"] for n in self.real} for made in self.run("adjoint", place, given)]

    def tangents(self, place, worlds, ways):
        given = [{**w, **{f"tan_in_{n}": d for n, d in way.items()}} for w, way in zip(worlds, ways, strict=True)]
        return [made["tan_out"] for made in self.run("tangent", place, given)]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """All operators and singular points, compiled."""
    folder = tmp_path_factory.mktemp("operators")
    batch, made = support.Batch(), {}
    for group, operators in GROUPS.items():
        for name, operator in operators.items():
            made[name] = subject = Subject(f"op_{name}", operator.text, operator.inputs)
            written = subject.write(folder)
            places = [BASE, *(OTHERS[:2] if group in LARGE else OTHERS)]
            subject.emit(written, batch, places, ("forward", "adjoint"))
            subject.emit(written, batch, places[:5], ("tangent",))
            subject.emit(written, batch, [SINGLE, SINGLE_WORLDS], ("forward",))
    for number, point in enumerate(SINGULAR):
        made[number] = subject = Subject(f"singular_{number}", point.text, list(point.at))
        subject.emit(subject.write(folder), batch, [BASE, *OTHERS[:3]], ("forward", "adjoint", "tangent"))
    batch.compile(FILES)
    return made


def world_of(subject, shift=0):
    """Inputs of a world; in other worlds the elements follow in another order (integers are shared by all worlds)."""
    return {f"in_{n}": np.roll(contents(n), shift if n in subject.real else 0, 0) for n in subject.inputs}


def random_like(subject, *names, seed=0):
    """Cotangents or directions: random numbers in [-1, 1]."""
    random = np.random.default_rng([seed, *map(ord, subject.name)])
    kinds = [subject.output if n == "out" else INPUTS[n][0] for n in names]
    return {n: random.uniform(-1, 1, (N, numbers(kind))) for n, kind in zip(names, kinds, strict=True)}


def seed_of(subject, seed=0):
    return random_like(subject, "out", seed=seed)["out"]


def shaped(name, array):
    """An input as the references take it: (N,), (N, numbers) or (N, 3, 3)."""
    return array.reshape(N, *types.shape_of(INPUTS[name][0]))


def reference_values(operator, world):
    given = [shaped(n, world[f"in_{n}"]) for n in operator.inputs]
    return np.asarray(operator.reference(np, *given)).reshape(N, -1)


def close(got, wanted, tolerance):
    """Within a tolerance relative to max(1, the largest number of the element)."""
    scale = np.maximum(1.0, np.abs(wanted).max(1, keepdims=True, initial=0.0))
    return got.shape == wanted.shape and bool((np.abs(got - wanted) <= tolerance * scale).all())


def same_bits(a, b):
    """Zeros count as equal: of a scalar, gcc makes -fma(a, b, c) one instruction, which gives 0 the other sign."""
    return a.shape == b.shape and a.dtype == b.dtype and (a + 0.0).tobytes() == (b + 0.0).tobytes()


# -- tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
def test_value_is_that_of_numpy(subjects, name):
    operator, subject = OPERATORS[name], subjects[name]
    world = world_of(subject)
    (got,) = subject.values(BASE, [world])
    wanted = reference_values(operator, world)
    assert close(got, wanted, operator.ulps * np.finfo(np.float64).eps)
    plain = types.scalars_of(plain_value(operator.text, operator.inputs))
    assert close(np.array([plain], float), wanted[3:4], (operator.ulps + 1) * np.finfo(np.float64).eps)


@pytest.mark.parametrize("name", OPERATORS)
def test_value_in_single_precision(subjects, name):
    operator, subject = OPERATORS[name], subjects[name]
    world = world_of(subject)
    rounded = {n: a.astype(np.float32).astype(np.float64) if a.dtype == np.float64 else a for n, a in world.items()}
    (got,) = subject.values(SINGLE, [rounded])
    # The reference is not rounded in between: one ulp for each of the three operations that EXACT may have.
    assert close(got, reference_values(operator, rounded), (operator.ulps + 3) * np.finfo(np.float32).eps)
    for other in subject.values(SINGLE_WORLDS, [rounded] * SINGLE_WORLDS[1]):
        assert same_bits(other, got)


@pytest.mark.parametrize("name", OPERATORS)
def test_adjoint_is_that_of_torch(subjects, name):
    operator, subject = OPERATORS[name], subjects[name]
    world, seed = world_of(subject), seed_of(subject)
    if not subject.real:
        return
    (got,) = subject.gradients(BASE, [world], [seed])
    given = {n: torch.tensor(shaped(n, world[f"in_{n}"])).requires_grad_(n in subject.real) for n in subject.inputs}
    result = operator.reference(torch, *given.values())
    result.backward(torch.tensor(seed).reshape(result.shape))
    for n in subject.real:
        gradient = given[n].grad
        wanted = np.zeros_like(got[n]) if gradient is None else gradient.numpy().reshape(N, -1)
        assert close(got[n], wanted, ADJOINT), n


@pytest.mark.parametrize("name", OPERATORS)
def test_adjoint_is_the_limit_of_differences(subjects, name):
    subject = subjects[name]
    world, seed = world_of(subject), seed_of(subject)
    if not subject.real:
        return
    (got,) = subject.gradients(BASE, [world], [seed])
    for n in subject.real:
        wanted = np.zeros_like(got[n])
        for k in range(wanted.shape[1]):
            move = STEP * np.eye(wanted.shape[1])[k]
            up, down = (
                subject.values(BASE, [{**world, f"in_{n}": world[f"in_{n}"] + sign * move}])[0] for sign in (1, -1)
            )
            wanted[:, k] = ((up - down) * seed).sum(1) / (2 * STEP)
        assert close(got[n], wanted, DIFFERENCES), n


@pytest.mark.parametrize("name", OPERATORS)
def test_tangent_fits_adjoint(subjects, name):
    """<cotangent, tangent of the result> = <gradient, tangent of the inputs>, element by element."""
    subject = subjects[name]
    world, seed, way = world_of(subject), seed_of(subject), random_like(subject, *subject.real, seed=1)
    if not subject.real:
        return
    (gradient,), (tangent,) = subject.gradients(BASE, [world], [seed]), subject.tangents(BASE, [world], [way])
    forth = seed * tangent
    back = np.concatenate([gradient[n] * way[n] for n in subject.real], 1)
    scale = np.maximum(1.0, np.maximum(np.abs(forth).sum(1), np.abs(back).sum(1)))
    assert (np.abs(forth.sum(1) - back.sum(1)) <= DOT_PRODUCT * scale).all()


@pytest.mark.parametrize("place", OTHERS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_lanes_do_not_change_a_bit(subjects, place):
    lanes, width, _ = place
    for name, subject in subjects.items():
        if ("forward", place) not in subject.forms:
            continue
        # Lanes that are worlds: each with its own inputs, and one lane that is not used.
        worlds = [world_of(subject, shift) for shift in range(width - 1 if lanes == WORLDS else 1)]
        if isinstance(name, int):
            worlds = [SINGULAR[name].world()] * len(worlds)
        seeds = [seed_of(subject, s) for s in range(len(worlds))]
        ways = [random_like(subject, *subject.real, seed=s) for s in range(len(worlds))]
        got = [subject.values(place, worlds)]
        wanted = [[subject.values(BASE, [w])[0] for w in worlds]]
        if ("adjoint", place) in subject.forms:
            got.append([g[n] for g in subject.gradients(place, worlds, seeds) for n in subject.real])
            alone = [subject.gradients(BASE, [w], [s])[0] for w, s in zip(worlds, seeds, strict=True)]
            wanted.append([g[n] for g in alone for n in subject.real])
        if ("tangent", place) in subject.forms:
            got.append(subject.tangents(place, worlds, ways))
            wanted.append([subject.tangents(BASE, [w], [d])[0] for w, d in zip(worlds, ways, strict=True)])
        for form, ours, theirs in zip(("value", "gradient", "tangent"), got, wanted, strict=False):
            assert all(map(same_bits, ours, theirs)), f"{form} of {name}: {subject.text}"


@pytest.mark.slow
@pytest.mark.skipif(support.aarch64() is None, reason="no cross compiler and emulator for aarch64")
def test_another_architecture_has_the_same_bits(subjects, tmp_path):
    """Values and gradients of all operators, in double and single precision, at the widths of NEON and beyond."""
    runs = []
    for name in OPERATORS:
        subject = subjects[name]
        world = {**world_of(subject), "adj_out": seed_of(subject), "out": np.zeros((N, numbers(subject.output)))}
        world |= {f"adj_in_{n}": np.zeros_like(world[f"in_{n}"]) for n in subject.real}
        for place in (BASE, SINGLE):
            forms = [subject.forms[form, place] for form in ("forward", "adjoint") if (form, place) in subject.forms]
            runs += [support.Run(form, [{a.name: world[a.name] for a in form.kernel.arrays}], N) for form in forms]
    found = support.run_stand_alone(runs, *support.aarch64(), tmp_path)
    for run, (got,) in zip(runs, found, strict=True):
        (wanted,) = run.emission(run.worlds, run.count)
        assert all(same_bits(got[n], wanted[n]) for n in wanted), run.emission.symbol


# -- singular points -----------------------------------------------------------------------------------------------


@dataclass
class Point:
    """A singular point: the stated value there, and the gradient if all cotangents are 1."""

    text: str
    at: dict[str, object]
    value: object
    gradient: dict[str, object]

    def world(self):
        kinds = {n: numbers(INPUTS[n][0]) for n in self.at}
        return {f"in_{n}": np.tile(np.array(x, float).reshape(1, kinds[n]), (N, 1)) for n, x in self.at.items()}


ZERO3, ZERO4 = [0, 0, 0], [0, 0, 0, 0]
SINGULAR = [
    Point("sqrt(a)", {"a": 0}, 0, {"a": 0}),
    Point("a ** 0.5", {"a": 0}, 0, {"a": 0}),
    Point("norm(x)", {"x": ZERO3}, 0, {"x": ZERO3}),
    Point("norm(x4)", {"x4": ZERO4}, 0, {"x4": ZERO4}),
    Point("normalize(x)", {"x": ZERO3}, ZERO3, {"x": ZERO3}),
    Point("normalize(x2)", {"x2": [0, 0]}, [0, 0], {"x2": [0, 0]}),
    Point("q.normalized()", {"q": ZERO4}, ZERO4, {"q": ZERO4}),
    Point("asin(a)", {"a": 1}, np.pi / 2, {"a": 0}),
    Point("asin(a)", {"a": -1}, -np.pi / 2, {"a": 0}),
    Point("acos(a)", {"a": 1}, 0, {"a": 0}),
    Point("acos(a)", {"a": -1}, np.pi, {"a": 0}),
    Point("atan2(a, b)", {"a": 0, "b": 0}, 0, {"a": 0, "b": 0}),
    Point("abs(a)", {"a": 0}, 0, {"a": 0}),
    Point("sign(a)", {"a": 0}, 0, {"a": 0}),
    Point("floor(a)", {"a": 2}, 2, {"a": 0}),
    Point("pow(a, b)", {"a": 0, "b": 2}, 0, {"a": 0, "b": 0}),
    Point("pow(a, b)", {"a": 0, "b": 1}, 0, {"a": 1, "b": 0}),
    Point("pow(a, b)", {"a": -2, "b": 3}, -8, {"a": 12, "b": 0}),
    # The later one on a tie.
    Point("min(a, b)", {"a": 0.5, "b": 0.5}, 0.5, {"a": 0, "b": 1}),
    Point("max(a, b)", {"a": 0.5, "b": 0.5}, 0.5, {"a": 0, "b": 1}),
    Point("min(a, b, c)", {"a": 0.5, "b": 0.5, "c": 0.5}, 0.5, {"a": 0, "b": 0, "c": 1}),
    Point("clamp(a, b, 2.0)", {"a": 0.5, "b": 0.5}, 0.5, {"a": 0, "b": 1}),
    Point("clamp(a, -2.0, b)", {"a": 0.5, "b": 0.5}, 0.5, {"a": 0, "b": 1}),
    # No singular points, though their textbook formulas divide by the angle.
    Point("cos_sinc(a)[0]", {"a": 0}, 1, {"a": -1 / 2}),
    Point("cos_sinc(a)[1]", {"a": 0}, 1, {"a": -1 / 6}),
    Point("quat_exp(x)", {"x": ZERO3}, [1, 0, 0, 0], {"x": [0.5, 0.5, 0.5]}),
]


@pytest.mark.parametrize(
    "number", range(len(SINGULAR)), ids=lambda k: f"{SINGULAR[k].text} at {[*SINGULAR[k].at.values()]}"
)
def test_singular_point_has_the_stated_derivative(subjects, number):
    point, subject = SINGULAR[number], subjects[number]
    world = point.world()
    (value,) = subject.values(BASE, [world])
    wanted = np.ravel(point.value)
    assert close(value, np.tile(wanted, (N, 1)), 4 * np.finfo(float).eps)
    (gradient,) = subject.gradients(BASE, [world], [np.ones((N, len(wanted)))])
    for n in subject.real:
        assert close(gradient[n], np.tile(np.ravel(point.gradient[n]), (N, 1)), 4 * np.finfo(float).eps), n
    way = random_like(subject, *subject.real)
    (tangent,) = subject.tangents(BASE, [world], [way])
    forward = sum((way[n] * point.gradient[n]).sum(1) for n in subject.real)
    assert np.allclose(tangent.sum(1), forward, rtol=0, atol=1e-14)


# -- completeness --------------------------------------------------------------------------------------------------


def test_the_registry_is_complete():
    """Everything callable in the language and in kinema.math occurs in the text of an operator, and is run by it."""
    called = set()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code) if event == "call" else None)
    try:
        for operator in OPERATORS.values():
            plain_value(operator.text, operator.inputs)
    finally:
        sys.setprofile(None)
    words = {word for operator in OPERATORS.values() for word in re.findall(r"\w+", operator.text)}
    names = {n for n in functions.__all__ if isinstance(getattr(functions, n), Intrinsic | Func)}
    assert names - words == set()
    assert {
        f.__name__ for f in map(LANGUAGE.get, names) if isinstance(f, Func) and f.python.__code__ not in called
    } == set()
    for name in kinema_math.__all__:
        made = getattr(kinema_math, name)
        if isinstance(made, Func):
            assert made.python.__code__ in called, name
        else:
            methods = {n: m for n, m in vars(made).items() if inspect.isfunction(m)}
            assert [n for n, m in methods.items() if m.__code__ not in called] == [], name
