"""Trees whose mass matrix is singular are refused by the joints that move the same masses; others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import kinema as kn
from kinema.errors import ModelError
from kinema.scene.description import Body, Joint, MassProperties, Robot

HEAVY = MassProperties(1.0, (0.0, 0.0, 0.2), (0.01, 0.0, 0.0, 0.01, 0.0, 0.01))


def compiled(*bodies: Body) -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(Robot("r", bodies), "r")
    return kn.compile(scene)


def hinge(name: str, axis: tuple[float, float, float]) -> Joint:
    return Joint(name, "revolute", axis)


def chain(*joints: Joint) -> list[Body]:
    """Links without mass, and one with mass at the end."""
    names = [f"b{i}" for i in range(len(joints))]
    bodies = [Body(name, names[i - 1] if i else None, joints=(joints[i],)) for i, name in enumerate(names)]
    return [*bodies[:-1], replace(bodies[-1], mass=HEAVY)]


def test_a_free_root_without_mass_above_a_hinge():
    with pytest.raises(ModelError, match="singular(.*\n)*.*'r/root', 'r/turn'(.*\n)*.*floating=False"):
        compiled(*chain(Joint("root", "free"), hinge("turn", (0.0, 0.0, 1.0))))


def test_two_hinges_about_the_same_axis():
    with pytest.raises(ModelError, match="'r/one', 'r/two'"):
        compiled(*chain(hinge("one", (0.0, 1.0, 0.0)), hinge("two", (0.0, 1.0, 0.0))))


def test_armature_mass_and_prescribed_joints_make_it_regular():
    root, turn = Joint("root", "free"), hinge("turn", (0.0, 0.0, 1.0))
    assert compiled(*chain(root, replace(turn, armature=1e-3))).nv == 7
    light, heavy = chain(root, turn)
    assert compiled(replace(light, mass=HEAVY), heavy).nv == 7
    assert compiled(*chain(replace(turn, name="moved", prescribed=True), turn)).nv == 2


def test_a_gimbal_of_links_without_mass_is_regular():
    axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    path = kn.simulate(compiled(*chain(*(hinge(f"j{i}", axis) for i, axis in enumerate(axes)))), steps=10, dt=1e-3)
    assert path.end.q.isfinite().all()


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_dampers_make_steps_regular(damping: float):
    """Steps are implicit in dampers, whose matrix is added to the mass matrix."""
    mass = kn.MassProperties(1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    upper = kn.Body("a", joints=(kn.Joint("j", "revolute", damping=damping),))
    lower = kn.Body("b", "a", joints=(kn.Joint("k", "revolute", damping=damping),), mass=mass)
    scene = kn.Scene()
    scene.add_robot(kn.Robot("r", (upper, lower)))
    if not damping:
        with pytest.raises(kn.ModelError, match="'r/j', 'r/k'"):
            kn.compile(scene)
        return
    path = kn.simulate(kn.compile(scene, dtype=torch.float64), kn.State(v=[1.0, 0.0]), steps=100, dt=1e-3)
    assert bool(path.q.isfinite().all()) and float(path.end.v.abs().max()) <= 1.0
