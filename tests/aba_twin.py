"""Forward dynamics and its adjoint, operation by operation: teaching text, and oracle of the engine's gradients.

The articulated-body algorithm in the frames of the links [Featherstone 2008, table 7.1], on values of `kinema.math` as
plain Python. Every operation is recorded; the reverse sweep goes back over the record and asks each for its adjoint, as
in [Qiao et al. 2021, section 4.1]. The adjoints are those of their appendix G (`tests/appendix_g.py`, misprints
corrected) and nothing else, beside those of sums, copies of entries, sines and cosines.

The engine goes other ways. It works in world axes, and its adjoint is a second solution and a sweep like that of
inverse dynamics, or goes by the factors of the mass matrix (`kinema.dynamics.aba`, `articulated_adjoint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.appendix_g import OPERATORS, Operator, flat, make, parts, together

from kinema.kinematics.joint_types import FREE, PRISMATIC, REVOLUTE
from kinema.lang import Float, identity33, mat33, vec3, vec4
from kinema.math import Dyad, Motion, Sym33
from kinema.model.tree import TreeArrays

ZERO, X_AXIS, Y_AXIS, Z_AXIS = vec3(0.0, 0.0, 0.0), vec3(1.0, 0.0, 0.0), vec3(0.0, 1.0, 0.0), vec3(0.0, 0.0, 1.0)
NOTHING = identity33(0.0)


@dataclass(eq=False)
class Node:
    """A value, and the derivative of the loss with respect to its numbers."""

    value: Any
    adj: np.ndarray

    @classmethod
    def constant(cls, value: Any) -> Node:
        return cls(value, np.zeros(len(flat(value))))


class Record:
    """Operations in the order in which they were done, on inputs by name."""

    def __init__(self, inputs: dict[str, np.ndarray], operators: dict[str, Operator] = OPERATORS) -> None:
        self.inputs, self.operators = inputs, operators
        self.gradient = {name: np.zeros(array.shape) for name, array in inputs.items()}
        self.done: list[tuple[str, tuple[Node, ...], Node]] = []

    def given(self, kind: type, name: str, start: int, count: int = 1) -> Node:
        """Rows of an input, as one value; what the sweep adds to its adjoint is added to the gradient."""
        rows = slice(start, start + count)
        return Node(make(kind, self.inputs[name][rows]), self.gradient[name][rows].reshape(-1))

    def __call__(self, name: str, *arguments: Node) -> Node:
        result = Node.constant(self.operators[name].value(*(node.value for node in arguments)))
        self.done.append((name, arguments, result))
        return result

    def sweep(self) -> None:
        """From the adjoints of results to those of the inputs: every operation once, the last one first."""
        for name, arguments, result in reversed(self.done):
            values = [parts(flat(node.value)) for node in arguments]
            found = self.operators[name].adjoint(parts(result.adj), *values)
            for node, adj in zip(arguments, found, strict=True):
                node.adj += together(adj)


def forward_dynamics(tree: TreeArrays, do: Record) -> list[Node]:
    """Accelerations for the inputs q, v, tau, mass, com, inertia, offset, axis, armature and gravity.

    As in the book, of each link in its own frame: X leads here from the parent, S are motions of its joint, V is its
    velocity, c what it accelerates with if no joint does, I its inertia and p its bias force, both with all that hangs
    on it (I_A, p_A: as the joint passes them on); U = I S, d = 1 / S.U, u = tau - S.p. A ball or free joint is
    eliminated one degree of freedom after the other, with nothing between them: so only numbers are inverted.
    """
    X, S, V, c, I, p = {}, {}, {0: Node.constant(Motion(ZERO, ZERO))}, {}, {}, {}
    joints = range(len(tree.parent))
    # From the roots to the leaves.
    for i in joints:
        first = int(tree.v_start[i])
        X[i], S[i] = joint(tree, do, i)
        v_J = Node.constant(Motion(ZERO, ZERO))
        for k, axis in enumerate(S[i]):
            v_J = do("add", v_J, do("scale", axis, do.given(Float, "v", first + k)))
        V[i + 1] = do("add", do("apply", X[i], V[tree.parent[i]]), v_J)
        c[i] = do("crossm", V[i + 1], v_J)
        I[i + 1] = Node.constant(Dyad(NOTHING, NOTHING, NOTHING, NOTHING))
    for b, link in enumerate(tree.body_link):
        if link > 0:
            R = Node.constant(make(mat33, tree.body_rotation[b]))
            offset = Node.constant(make(vec3, tree.body_offset[b]))
            centre = do("add", offset, do("turn", R, do.given(vec3, "com", b)))
            alone = do("central", do.given(Float, "mass", b), do.given(Sym33, "inertia", b))
            I[link] = do("add", I[link], do("shift", alone, do("transform", R, centre)))
    for i in joints:
        p[i + 1] = do("crossf", V[i + 1], do("mul_ori", I[i + 1], V[i + 1]))
    # From the leaves to the roots.
    U, d, u = {}, {}, {}
    for i in reversed(joints):
        up, first = int(tree.parent[i]), int(tree.v_start[i])
        I_A, p_A = I[i + 1], p[i + 1]
        for k in reversed(range(first, first + len(S[i]))):
            axis = S[i][k - first]
            U[k] = do("mul_ori", I_A, axis)
            d[k] = do("invert", do("add", do("dot", axis, U[k]), do.given(Float, "armature", k)))
            u[k] = do("subtract", do.given(Float, "tau", k), do("dot", axis, p_A))
            I_A = do("subtract", I_A, do("scale", do("v_vT", U[k], U[k]), d[k]))
            p_A = do("add", p_A, do("scale", U[k], do("multiply", u[k], d[k])))
        if up > 0:
            I[up] = do("add", I[up], do("shift", I_A, X[i]))
            p[up] = do("add", p[up], do("apply_transpose", X[i], do("add", p_A, do("mul_ori", I_A, c[i]))))
    # From the roots to the leaves once more. The world accelerates against gravity.
    A, a = {0: do("linear", do("scale", do.given(vec3, "gravity", 0, 3), Node.constant(-1.0)))}, {}
    for i in joints:
        moved = do("add", do("apply", X[i], A[tree.parent[i]]), c[i])
        for k, axis in enumerate(S[i], int(tree.v_start[i])):
            a[k] = do("multiply", do("subtract", u[k], do("dot", moved, U[k])), d[k])
            moved = do("add", moved, do("scale", axis, a[k]))
        A[i + 1] = moved
    return [a[k] for k in range(tree.nv)]


def joint(tree: TreeArrays, do: Record, i: int) -> tuple[Node, list[Node]]:
    """The transform from a joint's parent to its link, and the motions of the link that it allows."""
    kind, at = tree.kind[i], int(tree.q_start[i])
    turned, shift = Node.constant(identity33(1.0)), Node.constant(ZERO)
    three = (X_AXIS, Y_AXIS, Z_AXIS)
    if kind in (REVOLUTE, PRISMATIC):
        axis, q = do.given(vec3, "axis", i), do.given(Float, "q", at)
        axis = do("scale", axis, do("invert", do("norm", axis)))
        if kind == REVOLUTE:
            half = do("multiply", q, Node.constant(0.5))
            turned = rotation(do, do("cos", half), do("scale", axis, do("sin", half)))
        else:
            shift = do("scale", axis, q)
        motions = [do("angular" if kind == REVOLUTE else "linear", axis)]
    else:
        if kind == FREE:
            shift, at = do.given(vec3, "q", at, 3), at + 3
        quaternion = do.given(vec4, "q", at, 4)
        quaternion = do("scale", quaternion, do("invert", do("norm", quaternion)))
        turned = rotation(do, do("real", quaternion), do("imaginary", quaternion))
        motions = [Node.constant(Motion(axis, ZERO)) for axis in three]
        motions += [Node.constant(Motion(ZERO, axis)) for axis in three if kind == FREE]
    fixed = do("transform", Node.constant(make(mat33, tree.rotation[i])), do.given(vec3, "offset", i))
    return do("compose", do("transform", turned, shift), fixed), motions


def rotation(do: Record, w: Node, u: Node) -> Node:
    """The matrix of a unit quaternion: 1 + 2 w [u] + 2 [u] [u], where [u] is the cross product with u."""
    cross, two = do("v_cross", u), Node.constant(2.0)
    turned = do("add", do("scale", cross, w), do("matmul", cross, cross))
    return do("add", Node.constant(identity33(1.0)), do("scale", turned, two))
