"""Rotations, spatial algebra and inertias, written in the kernel language as any user could.

Operators of the adjoint articulated-body simulator [Qiao et al. 2021, appendix G] and their names here:

| eq. | operator | here |
|---|---|---|
| 20, 21, 22, 25 | products of scalars, matrices, vectors | `a * b`, `m @ a`, `a @ b`, `a @ b @ c` of the language |
| 23 | A^T B A | `congruence(a, b)`, `Dyad.congruence(a)`, `Sym33.congruence(E)` |
| 24, 26, 27, 48 | matrix inverse, cross product, norm, v x | `inverse`, `cross`, `norm`, `skew` of the language |
| 28, 30 | motions through a transform | `Transform.apply`, `Transform.apply_inverse` |
| 32, 34 | forces through a transform | `Transform.apply_transpose`, `Transform.apply_inverse_transpose` |
| 36 | product of transforms | `X @ Y`; also `X.inverse()` |
| 38, 40 | spatial cross products | `Motion.crossm`, `Motion.crossf` |
| 42, 44 | dyad mul-ori, mul-inv | `Dyad @ m`, `Dyad.mul_inv`; the true inverse is `Dyad.solve` |
| 46, 50, 52 | dyad v v^T, st2sd, shift | `dyad_outer`, `dyad_of_transform`, `Dyad.shift` |
| 53 | quaternion times vector | `Quat.mul_vec`; the product is `p @ q` |
"""

from kinema.math.inertia import (
    Dyad,
    RigidInertia,
    Sym33,
    SymmetricDyad,
    congruence,
    dyad_of_transform,
    dyad_outer,
    product_cotangent,
    rigid_inertia,
    sym_parallel_axis,
    symmetric_outer,
)
from kinema.math.quaternion import Quat, cos_sinc, quat_exp, quat_from_axis_angle, quat_from_matrix, quat_identity
from kinema.math.spatial import Force, Motion, Transform

__all__ = [
    "Dyad",
    "Force",
    "Motion",
    "Quat",
    "RigidInertia",
    "Sym33",
    "SymmetricDyad",
    "Transform",
    "congruence",
    "cos_sinc",
    "dyad_of_transform",
    "dyad_outer",
    "product_cotangent",
    "quat_exp",
    "quat_from_axis_angle",
    "quat_from_matrix",
    "quat_identity",
    "rigid_inertia",
    "sym_parallel_axis",
    "symmetric_outer",
]
