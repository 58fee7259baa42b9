"""The table of joint types, and the functions of kernels that know types: they say the same."""

from __future__ import annotations

import numpy as np
import pytest

import kinema as kn
from kinema.kinematics import joint_types as formulas
from kinema.lang import Float, Int, identity33, mat33, vec3
from kinema.lang.language import types
from kinema.math import Motion
from kinema.scene.joint_types import ANGLE, MOVING, NUMBERS, RANGE, SINGLE, TYPES, JointType

AXIS = np.array([2.0, -1.0, 2.0]) / 3.0

each_type = pytest.mark.parametrize("one", MOVING, ids=[one.word for one in MOVING])


def numbers(value: mat33 | vec3) -> np.ndarray:
    return np.array(types.scalars_of(value), float)


def vector(values: np.ndarray) -> vec3:
    return vec3(*map(Float, values))


def test_the_table():
    assert [NUMBERS[one.word] for one in MOVING] == [*range(len(MOVING))]
    assert [word for word in TYPES if word not in NUMBERS] == ["fixed"] and TYPES["fixed"].velocities == 0
    assert SINGLE == ("revolute", "prismatic")
    names = [name for one in TYPES.values() for name in one.urdf] + [one.mjcf for one in MOVING if one.mjcf]
    assert len(set(names)) == len(names)


@each_type
def test_functions_and_table_agree(one: JointType):
    kind = Int(NUMBERS[one.word])
    assert bool(formulas.has_axis(kind)) == one.has_axis
    assert bool(formulas.has_position(kind)) == one.position
    assert bool(formulas.has_quaternion(kind)) == (one.quaternion is not None)
    assert int(formulas.quaternion_at(kind, Int(10))) == 10 + (one.quaternion or 0)
    assert one.limit != RANGE or one.is_single
    assert one.limit != ANGLE or one.quaternion is not None
    plain = one.coordinates - 3 * one.position - 4 * (one.quaternion is not None)
    assert one.velocities == plain + 3 * one.position + 3 * (one.quaternion is not None)


@each_type
def test_neutral_coordinates_move_nothing(one: JointType):
    """The pose is the identity there, and the motions are those of the table, about any point."""
    kind, arm = Int(NUMBERS[one.word]), np.array([0.3, 0.1, -0.2])
    turn, shift = formulas.pose_in_joint(kind, vector(AXIS), [Float(x) for x in one.neutral], Int(0))
    assert np.array_equal(numbers(turn), np.eye(3).ravel()) and not numbers(shift).any()
    S: list[Motion] = [Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)) for _ in range(one.velocities)]
    unit = identity33(1.0)
    formulas.put_motions(kind, vector(AXIS), unit, unit, vector(arm), Int(0), S)
    found = np.array([[*numbers(m.w), *numbers(m.v)] for m in S])
    wanted = one.motions(AXIS)
    wanted[:, 3:] += np.cross(arm, wanted[:, :3])
    assert np.allclose(found, wanted, rtol=0, atol=1e-15)
    own = [formulas.own_motion(kind, Int(k), m) for k, m in enumerate(S)]
    assert np.allclose([[*numbers(m.w), *numbers(m.v)] for m in own], one.motions(AXIS), rtol=0, atol=1e-15)


@each_type
def test_motions_are_slopes_of_the_pose(one: JointType):
    """Where coordinates are not neutral: a turn and a shift of the pose for each velocity, by differences."""
    random, h = np.random.default_rng(0), 1e-6
    q = np.array(one.neutral) + 0.3 * random.normal(size=one.coordinates)
    if one.quaternion is not None:
        q[one.quaternion :][:4] /= np.linalg.norm(q[one.quaternion :][:4])

    def pose(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = formulas.pose_in_joint(Int(NUMBERS[one.word]), vector(AXIS), [Float(x) for x in q], Int(0))
        return numbers(found[0]).reshape(3, 3), numbers(found[1])

    R, p = pose(q)
    S: list[Motion] = [Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)) for _ in range(one.velocities)]
    turned = mat33(*map(Float, R.ravel()))
    formulas.put_motions(Int(NUMBERS[one.word]), vector(AXIS), identity33(1.0), turned, vec3(0.0, 0.0, 0.0), Int(0), S)
    for k in range(one.velocities):
        v = np.eye(one.velocities)[k]
        (ahead, there), (behind, here) = (pose(moved(one, q, R, s * h * v)) for s in (1, -1))
        spin = (ahead - behind) @ R.T / (2 * h)
        assert np.allclose([spin[2, 1], spin[0, 2], spin[1, 0]], numbers(S[k].w), atol=1e-8)
        assert np.allclose((there - here) / (2 * h), numbers(S[k].v), atol=1e-8)


def moved(one: JointType, q: np.ndarray, R: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Coordinates that moved by a small d, by the rules of `kinematics/joint_types.py`."""
    q = q.copy()
    if one.quaternion is None:
        return q + d
    if one.position:
        q[:3] += R @ d[3:6]
    w, x, y, z = q[one.quaternion :][:4]
    q[one.quaternion :][:4] += 0.5 * np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]) @ d[:3]
    return q


def test_words_of_the_table_are_those_of_models():
    ball = kn.MassProperties(1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    scene = kn.Scene()
    scene.add_robot(kn.Robot("r", (kn.Body("b", joints=(kn.Joint("j", "ball"),), mass=ball),)))
    joint = kn.compile(scene).joint("r/j")
    assert joint.kind == "ball" and joint.q == slice(0, 4) and joint.v == slice(0, 3)
