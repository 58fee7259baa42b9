"""Sites, sensors and joint loads against those of MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

import kinema as kn
from kinema.scene.description import rotation_matrix

SENSORS = {
    "framepos": ("site_position", slice(None)),
    "framelinvel": ("site_velocity", slice(3, 6)),
    "frameangvel": ("site_velocity", slice(0, 3)),
    "gyro": ("imu", slice(0, 3)),
    "accelerometer": ("imu", slice(3, 6)),
}


def sensors_on(*sites: str) -> str:
    """All sensors of all sites; a force and a torque sensor feel what holds the site's body."""
    lines = []
    for kind in (*SENSORS, "force", "torque"):
        words = 'objtype="site" objname' if kind.startswith("frame") else "site"
        lines += [f'<{kind} name="{kind} {site}" {words}="{site}"/>' for site in sites]
    return f"<sensor>{''.join(lines)}</sensor>"


MOVING = f"""
<mujoco><option gravity="0.5 -1 -9.81"/><default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="still" pos="1 2 3" quat="1 2 0 1"/>
    <body name="trunk" pos="0 0 1"><freejoint/>
      <geom type="box" size=".2 .1 .05" pos=".05 0 0.02"/>
      <site name="imu" pos=".1 -.05 .2" quat="1 .3 -.2 .5"/>
      <body name="arm" pos=".2 .1 0" quat="1 0.2 0 0"><joint type="hinge" axis="1 2 3" pos=".02 0 .01" armature=".1"/>
        <geom type="capsule" size=".03" fromto="0 0 0 .3 .1 0"/>
        <site name="elbow" pos=".02 0 .01" quat="2 1 0 1"/>
        <body name="hand" pos=".3 .1 0"><joint type="ball"/>
          <geom type="box" size=".05 .1 .02" pos="0 .1 0"/>
          <site name="wrist" quat="1 -1 .3 0"/>
        </body>
      </body>
    </body>
    <body name="cart" pos="2 0 0"><joint type="slide" axis="0 1 1"/>
      <geom type="sphere" size=".1"/>
      <site name="cart" pos="0 0 .1"/>
    </body>
  </worldbody>
  {sensors_on("imu", "elbow", "wrist", "cart", "still")}
</mujoco>"""


def readings(spec: mujoco.MjModel, data: mujoco.MjData, name: str) -> np.ndarray:
    at = mujoco.mj_name2id(spec, mujoco.mjtObj.mjOBJ_SENSOR, name)
    return data.sensordata[spec.sensor_adr[at] : spec.sensor_adr[at] + spec.sensor_dim[at]].copy()


def compiled(text: str) -> kn.Model:
    scene = kn.Scene((0.5, -1.0, -9.81) if text is MOVING else (0.0, 0.0, -9.81))
    if text is not MOVING:
        scene.add_ground()
    with pytest.warns(kn.LeftOutWarning, match="sensor"):  # `record=` takes their place
        scene.add_robot(kn.read_mjcf(text), "r")
    return kn.compile(scene)


def test_moving_sensors_agree():
    """A tree that moves, is driven and pushed, out of contact: rounding is all that differs."""
    model, spec = compiled(MOVING), mujoco.MjModel.from_xml_string(MOVING)
    assert model.sites.names == [f"r/{s}" for s in ("still", "imu", "elbow", "wrist", "cart")]
    random, data, nv = np.random.default_rng(4), mujoco.MjData(spec), model.nv
    q = random.normal(size=model.nq)  # both engines have the same order of joints: free, hinge, ball, slide
    for at in (3, 8):
        q[at : at + 4] /= np.linalg.norm(q[at : at + 4])
    v, tau, wrench = random.normal(size=nv), random.normal(size=nv), random.normal(size=6)
    turn = np.zeros((nv, nv))  # our velocities -> MuJoCo's
    turn[:3, 3:6], turn[3:6, :3], turn[6:, 6:] = rotation_matrix(q[3:7].tolist()), np.eye(3), np.eye(nv - 6)
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, turn @ v, turn @ tau
    mujoco.mj_kinematics(spec, data)
    mujoco.mj_comPos(spec, data)
    hand = mujoco.mj_name2id(spec, mujoco.mjtObj.mjOBJ_BODY, "hand")
    moment = wrench[:3] + np.cross(data.xpos[hand] - data.xipos[hand], wrench[3:])
    data.xfrc_applied[hand] = [*wrench[3:], *moment]
    mujoco.mj_forward(spec, data)
    found = kn.simulate(
        model,
        kn.State(torch.tensor(q), torch.tensor(v)),
        kn.Control(tau=tau, wrenches={"r/hand": wrench}),
        steps=1,
        dt=1e-3,
        record=["site_position", "site_rotation", "site_velocity", "imu", "joint_load"],
    ).recorded
    for s, name in enumerate(model.sites.names):
        for kind, (record, part) in SENSORS.items():
            wanted = readings(spec, data, f"{kind} {name[2:]}")
            assert np.allclose(found[record][0, s, part], wanted, rtol=1e-10, atol=1e-10), (kind, name)
        turned = data.site_xmat[s].reshape(3, 3)
        assert np.allclose(found["site_rotation"][0, s], turned, atol=1e-12)
    # MuJoCo's moment is about the site; elbow and wrist are where their joints are. Drives turn with the joint there.
    for site, joint in (("elbow", 1), ("wrist", 2)):
        inward = data.site_xmat[model.sites.names.index(f"r/{site}")].reshape(3, 3).T
        moment, force = found["joint_load"][0, joint].numpy().reshape(2, 3)
        assert np.allclose(inward @ force, readings(spec, data, f"force {site}"), rtol=1e-9, atol=1e-9)
        assert np.allclose(inward @ moment, readings(spec, data, f"torque {site}"), rtol=1e-9, atol=1e-9)


STANDING = f"""
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
    <body name="box" pos="0 0 .1"><freejoint/>
      <geom type="box" size=".2 .2 .1"/>
      <site name="imu" pos=".1 0 .1" quat="1 .5 0 0"/>
      <body name="load" pos="0 .05 .1"><joint type="slide" axis="0 0 1" stiffness="20000" damping="500"/>
        <geom type="box" size=".05 .05 .05" pos="0 0 .05" contype="0" conaffinity="0"/>
        <site name="scales"/>
      </body>
    </body>
  </worldbody>{sensors_on("imu", "scales")}</mujoco>"""


def test_standing_sensors_agree():
    """At rest both engines read g upwards and the weight of what stands on the box, though their contacts differ."""
    spec = mujoco.MjModel.from_xml_string(STANDING)
    data = mujoco.MjData(spec)
    for _ in range(1500):
        mujoco.mj_step(spec, data)
    mujoco.mj_forward(spec, data)
    model = compiled(STANDING.replace('<geom name="floor" type="plane" size="1 1 1"/>', ""))
    found = kn.simulate(model, steps=1500, dt=2e-3, record=["imu", "joint_load", "impulse"]).recorded
    assert (found["impulse"][-1, :, 0] > 0).sum() >= 3
    # Both come to rest as oscillators of 10 Hz and more with a damping of a tenth or more: nothing is left after 3 s.
    assert np.allclose(found["imu"][-1, 0, :3], readings(spec, data, "gyro imu"), atol=1e-6)
    assert np.allclose(found["imu"][-1, 0, 3:], readings(spec, data, "accelerometer imu"), atol=1e-4)
    weight = readings(spec, data, "force scales")
    assert weight[2] > 9 and np.allclose(found["joint_load"][-1, 1, 3:], weight, atol=1e-3)
