"""Scenes of the contact law "convex" as MJCF texts, and their twins in MuJoCo, whose solver converges to rounding."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.kinematics.joint_types import BALL, FREE

ARM = """
<body name='a' pos='0 0 1'><joint name='j1' axis='0 1 0' range='-20 30' limited='true' {one}/>
  <geom type='capsule' fromto='0 0 0 .3 0 0' size='.03'/>
  <body name='b' pos='.3 0 0'><joint name='j2' axis='0 1 0' {two}/>
    <geom type='capsule' fromto='0 0 0 .3 0 0' size='.03'/>
    <body name='c' pos='.3 0 0'><joint name='j3' axis='0 0 1'/><geom type='capsule' fromto='0 0 0 .2 0 .1' size='.03'/>
    </body></body></body>"""
BOX = "<body name='{}' pos='{}'><freejoint/><geom type='box' size='.1 .2 .3' contype='0' conaffinity='0'/></body>"
BALL_JOINT = """
<body name='hung' pos='2 0 2'><joint name='ball' type='ball' range='0 40' limited='true' frictionloss='.02'/>
  <geom type='capsule' fromto='0 0 0 .2 0 .4' size='.05' contype='0' conaffinity='0'/></body>"""


def world(inside: str, option: str = "", rest: str = "", ground: str = "friction='.7'") -> str:
    """A model with a ground."""
    floor = f"<geom name='floor' type='plane' size='5 5 .1' {ground}/>"
    return f"<mujoco><option {option}/><worldbody>{floor}{inside}</worldbody>{rest}</mujoco>"


def thrown(geom: str, height: float) -> str:
    """A free body above the ground."""
    return f"<body name='thrown' pos='0 0 {height}'><freejoint/>{geom}</body>"


def pair(numbers: str) -> str:
    """A contact pair of the thrown body and the floor."""
    return f"<contact><pair geom1='g' geom2='floor' {numbers}/></contact>"


def tie(kind: str) -> str:
    """An equality."""
    return f"<equality>{kind}</equality>"


SHAPES = {
    "sphere": ("size='.1'", 0.12),
    "capsule": ("type='capsule' size='.05 .1' euler='20 80 0'", 0.09),
    "box": ("type='box' size='.1 .07 .05' euler='10 5 0'", 0.1),
}
CONTACTS = {
    f"{shape} {cone} {condim}": world(
        thrown(f"<geom {size} condim='{condim}'/>", height),
        f"cone='{cone}' impratio='{1 + 2 * (cone == 'elliptic')}'",
        ground=f"friction='.7' condim='{condim}'",
    )
    for shape, (size, height) in SHAPES.items()
    for cone in ("pyramidal", "elliptic")
    for condim in (1, 3, 4, 6)
}
G = "<geom name='g' size='.1' {}/>"
OWN = "condim='6' friction='.9 .3 .02 .01 .003' solref='.03 .8' margin='.01' solimp='.8 .9 .02 .5 2'"
FEATURES = {
    "limits": world(ARM.format(one="", two="")),
    "soft limits": world(
        ARM.format(
            one="margin='.1' solreflimit='.05 .7' solimplimit='.5 .99 .1 .3 3'",
            two="limited='true' range='-5 5' solreflimit='-500 -20'",
        )
    ),
    "dry friction": world(
        ARM.format(
            one="frictionloss='.3'",
            two="frictionloss='.1' solreffriction='.05 1' solimpfriction='.8 .9 .01 .5 2' damping='.2' armature='.01'",
        )
    ),
    "ball limit": world(BALL_JOINT),
    "coupled joints": world(
        ARM.format(one="", two=""), rest=tie("<joint joint1='j2' joint2='j1' polycoef='.1 -1.5 0 0 0' solref='.05 1'/>")
    ),
    "connect": world(ARM.format(one="", two=""), rest=tie("<connect body1='c' body2='a' anchor='.1 0 .3'/>")),
    "connect to the world": world(
        thrown(G.format(""), 1.0), rest=tie("<connect body1='thrown' anchor='.1 0 .3' solref='.04 .8'/>")
    ),
    "weld": world(
        BOX.format("f", "0 0 1") + ARM.format(one="", two=""),
        rest=tie(
            "<weld body1='f' body2='c' anchor='.1 .2 .05' relpose='.1 .2 .1 1 .2 .1 .4' torquescale='.7' "
            "solref='.04 .8'/>"
        ),
    ),
    "weld of free bodies": world(
        BOX.format("f", "0 0 1") + BOX.format("g", "1 0 1"),
        rest=tie("<weld body1='f' body2='g' relpose='.1 .2 .1 1 .2 .1 .4'/>"),
    ),
    "priority": world(
        thrown(G.format("priority='2' friction='.2 .01 .002' condim='4' solref='.05 .5' margin='.02'"), 0.12),
        ground="friction='1' margin='.01' condim='6'",
    ),
    "mixed": world(
        thrown(
            G.format(
                "solmix='3' friction='.2 .01 .002' condim='6' solref='.05 .5' solimp='.5 .8 .05 .4 3' margin='.02' "
                "gap='.01'"
            ),
            0.12,
        ),
        ground="friction='1' solmix='.5' margin='.01'",
    ),
    "direct": world(thrown(G.format("solref='-2000 -30'"), 0.12), ground="friction='1' solref='.03 1'"),
    "pair, elliptic": world(
        thrown(G.format(""), 0.12), "cone='elliptic' impratio='5'", pair(f"{OWN} solreffriction='-1 -40'")
    ),
    "pair, pyramidal": world(thrown(G.format(""), 0.12), rest=pair(OWN)),
    "two bodies": world(
        thrown("<geom size='.1'/>", 0.12)
        + "<body pos='.02 .01 .3'><freejoint/><geom type='capsule' size='.06 .1' euler='0 90 0'/></body>"
    ),
    "servos": world(
        "<body pos='0 0 .1'><joint name='s' type='slide' axis='0 0 1' damping='3'/><geom size='.1'/><body pos='.1 0 0'>"
        "<joint name='h' axis='0 1 0' damping='.1' armature='.01' stiffness='2'/>"
        "<geom type='capsule' fromto='0 0 0 .4 0 0' size='.04' mass='1'/></body></body>",
        rest="<actuator><position joint='h' kp='50' kv='4'/><velocity joint='s' kv='8' forcerange='-6 6'/></actuator>",
    ),
}
SCENES = CONTACTS | FEATURES


def model_of(mujoco: Any, given: str) -> tuple[kn.Model, Any]:
    """The model of an MJCF file or text in the law "convex", and MuJoCo's."""
    is_text = given.lstrip().startswith("<")
    twin = mujoco.MjModel.from_xml_string(given) if is_text else mujoco.MjModel.from_xml_path(given)
    elliptic = twin.opt.cone == int(mujoco.mjtCone.mjCONE_ELLIPTIC)
    contact = kn.Contact(law="convex", cone=bool(elliptic), impratio=float(twin.opt.impratio))
    scene = kn.Scene(gravity=tuple(twin.opt.gravity), contact=contact)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scene.add_robot(kn.read_mjcf(given), "r", self_collision=True)
    # MuJoCo's Newton method to rounding error: by default it stops at 1e-8.
    twin.opt.solver, twin.opt.tolerance, twin.opt.iterations = int(mujoco.mjtSolver.mjSOL_NEWTON), 0.0, 200
    twin.opt.ls_tolerance, twin.opt.ls_iterations = 1e-12, 200
    return kn.compile(scene), twin


def state_of(mujoco: Any, model: kn.Model, twin: Any, qpos: Any, qvel: Any) -> tuple[Tensor, Tensor]:
    """A state of MuJoCo here: free bodies have their angular velocity first, and the linear one in their own axes."""
    tree, q, v = model.tree, np.zeros(model.nq), np.zeros(model.nv)
    for i in range(len(tree.joints)):  # in the order of the file, as there
        a, d, to, at = int(tree.q_start[i]), int(tree.v_start[i]), int(twin.jnt_qposadr[i]), int(twin.jnt_dofadr[i])
        if tree.kind[i] == FREE:
            turn = np.zeros(9)
            mujoco.mju_quat2Mat(turn, qpos[to + 3 : to + 7])
            q[a : a + 7] = qpos[to : to + 7]
            v[d : d + 3], v[d + 3 : d + 6] = qvel[at + 3 : at + 6], turn.reshape(3, 3).T @ qvel[at : at + 3]
        elif tree.kind[i] == BALL:
            q[a : a + 4], v[d : d + 3] = qpos[to : to + 4], qvel[at : at + 3]
        else:
            q[a], v[d] = qpos[to] - twin.qpos0[to], qvel[at]
    return torch.tensor(q), torch.tensor(v)
