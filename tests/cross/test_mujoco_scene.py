"""MuJoCo's model of a scene has its masses, its contacts and its motion."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

import kinema as kn
from kinema.errors import ModelError
from kinema.scene.description import Actuator, Body, Joint, MassProperties, Mimic, Pose, Robot
from kinema.scene.softness import ContactSurface, Softness
from kinema.verification.mujoco_scene import mujoco_model, mujoco_state, state_from_mujoco

DT, STEPS = 2e-3, 150
TURNED = (0.8, 0.0, 0.6, 0.0)


def _arm() -> Robot:
    """Every kind of joint and of actuator, limits, dry friction, a mimic joint, and a link without mass."""
    heavy = MassProperties(1.0, (0.02, 0.01, 0.1), (0.02, 0.001, -0.002, 0.03, 0.003, 0.025))
    joints = {
        "swing": Joint("swing", "revolute", (0.0, 1.0, 0.0), lower=-0.3, upper=0.4, damping=0.1, armature=0.01),
        "slide": Joint("slide", "prismatic", (0.0, 0.0, 1.0), (0.1, 0.0, 0.0), stiffness=80.0, rest=0.05, friction=0.4),
        "turn": Joint("turn", "ball", upper=0.5),
        "follow": Joint("follow", "revolute", (1.0, 0.0, 0.0), (0.0, 0.05, 0.0), mimic=Mimic("swing", 0.7, 0.1)),
        "limp": Joint("limp", "revolute", (0.0, 1.0, 0.0), limit_margin=0.05, lower=-0.2, effort=1.5),
    }
    limp = replace(joints["limp"], limit_softness=Softness((0.04, 0.8)))
    bodies = [
        Body("base", None, Pose((0.0, 0.0, 1.0)), shapes=(kn.Box((0.1, 0.1, 0.05)),)),
        Body("flange", "base", Pose((0.0, 0.0, 0.1), TURNED)),
        Body("a", "flange", Pose((0.0, 0.0, 0.1)), (joints["swing"],), heavy, (kn.Capsule(0.04, 0.1),)),
        Body("b", "a", Pose((0.1, 0.0, 0.2)), (joints["slide"],), heavy, (kn.Cylinder(0.04, 0.1),)),
        Body("c", "b", Pose((0.0, 0.0, 0.3)), (joints["turn"],), heavy),
        Body("d", "a", Pose((0.0, 0.2, 0.2)), (joints["follow"],), heavy),
        Body("e", "d", Pose((0.0, 0.0, 0.2)), (limp,), heavy),
    ]
    actuators = (
        Actuator("pull", "swing", gear=3.0, force=2.0),
        Actuator("hold", "limp", "position", kp=10.0, kd=0.5),
        Actuator("keep", "follow", "velocity", kd=0.4),
    )
    return Robot("arm", tuple(bodies), actuators)


def _scene(law: str = "convex") -> kn.Scene:
    scene = kn.Scene(contact=kn.Contact(law=law, cone=True, impratio=2.0, friction=0.7))
    scene.add_ground(-0.01)
    soft = ContactSurface(Softness((0.03, 0.9), (0.8, 0.9, 0.01, 0.4, 3.0)), condim=6, priority=1, margin=0.002)
    scene.add_robot(_arm(), "arm", self_collision=True, pos=(1.0, 0.0, 0.0), rot=TURNED)
    scene.add_body(kn.Sphere(0.1, surface=soft, friction=0.4), "ball", pos=(-1.0, 0.0, 0.12))
    scene.add_body(kn.Box((0.1, 0.08, 0.06)), "box", pos=(-2.0, 0.0, 0.09), rot=TURNED)
    scene.add_robot(kn.shapes.humanoid(), "man", self_collision=True, pos=(-3.0, 0.0, 0.03))
    return scene


def test_the_motion_of_the_convex_law_is_mujocos():
    """With controls and contacts; MuJoCo's solver to rounding, 1e-9 of a metre remains after 150 steps."""
    scene = _scene()
    model = kn.compile(scene)
    rival = mujoco_model(scene, model, DT)
    rival.opt.tolerance, rival.opt.iterations, rival.opt.ls_tolerance, rival.opt.ls_iterations = 0.0, 200, 1e-12, 200
    data, state = mujoco.MjData(rival), model.initial_state()
    state = state.replace(v=0.1 * torch.tensor(np.random.default_rng(0).normal(size=model.nv)))
    data.qpos[:], data.qvel[:] = mujoco_state(model, rival, state.q, state.v)
    u = torch.tensor(0.3 * np.random.default_rng(1).normal(size=(STEPS, rival.nu)))
    path, touching = kn.simulate(model, state, u, steps=STEPS, dt=DT), 0
    for k in range(STEPS):
        data.ctrl[:] = u[k]
        mujoco.mj_step(rival, data)
        touching = max(touching, data.ncon)
    q, v = state_from_mujoco(model, rival, data.qpos, data.qvel)
    assert touching > 10
    assert float((q - path.end.q).abs().max()) < 1e-8 and float((v - path.end.v).abs().max()) < 1e-6


def test_states_return():
    scene = _scene()
    model = kn.compile(scene)
    rival = mujoco_model(scene, model, DT)
    random = np.random.default_rng(2)
    q, v = model.initial_state().q, torch.tensor(random.normal(size=model.nv))
    for at, name in ((0, "ball/free"), (1, "arm/turn")):
        turn = random.normal(size=4)
        q[model.q_index(name)][3 - 3 * at :] = torch.tensor(turn / np.linalg.norm(turn))
    q[model.q_index("arm/swing")] = 0.2
    there = state_from_mujoco(model, rival, *mujoco_state(model, rival, q, v))
    assert float((there[0] - q).abs().max()) == 0 and float((there[1] - v).abs().max()) < 1e-14


def test_bodies_that_never_collide_here_are_excluded_there():
    man = replace(kn.shapes.humanoid(), excluded=frozenset({frozenset(("pelvis", "hand_left"))}))
    for self_collision in (False, True):
        scene = kn.Scene()
        scene.add_robot(man, "man", self_collision=self_collision)
        model = kn.compile(scene)
        rival = mujoco_model(scene, model, DT)
        solid = len({rival.geom_bodyid[g] for g in range(rival.ngeom)})
        meeting = {
            frozenset((int(a), int(b))) for a, b in zip(model.candidates.first, model.candidates.second, strict=True)
        }
        assert rival.nexclude == solid * (solid - 1) // 2 - len(meeting)
        assert bool(meeting) is self_collision


def test_what_is_not_translated_is_refused():
    scene = kn.Scene()
    scene.add_cloth(kn.shapes.sheet(1.0, 1.0, (2, 2)))
    with pytest.raises(ModelError, match="soft matter"):
        mujoco_model(scene, kn.compile(scene), DT)
