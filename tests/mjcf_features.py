"""Features of MJCF files that act on the motion, one by one, on a robot that all of them fit."""

from __future__ import annotations

from collections.abc import Iterable

ROBOT = """<mujoco><compiler angle="radian"/><option {option}/>{medium}
<worldbody>
  <site name="hook" pos="0.1 0.1 0.6"/>
  {world}
  <body name="upper" {upper}>
    <joint name="shoulder" axis="0 1 0" ref="0.2" damping="0.3"/>
    <geom type="capsule" fromto="0 0 0 0.3 0.05 0" size="0.06" density="2000" contype="0" conaffinity="0"/>
    <site name="middle" pos="0.15 0 0.07"/>
    <body name="lower" pos="0.3 0 0" {lower}>
      <joint name="elbow" axis="0 1 0.2" armature="0.05"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0.1" size="0.05" density="2000" contype="0" conaffinity="0"/>
      <site name="tip" pos="0.1 0.02 0.3" euler="0.3 0.4 0.1"/>
      {bends}
    </body>
    <body name="carriage" pos="0.1 0.2 0">
      <joint name="slide" type="slide" axis="0 0 1" damping="1"/>
      <geom type="box" size="0.1 0.05 0.08" density="2000" contype="0" conaffinity="0"/>
      <site name="eye" pos="0 0 0.1"/>
    </body>
  </body>
  <body name="drone" pos="1 1 1" {drone}>
    <freejoint name="fly"/>
    <geom name="hull" type="box" size="0.1 0.2 0.3" pos="0.05 0 0" contype="0" conaffinity="0"/>
    <site name="rotor" pos="0.1 0 0.2" euler="0.5 0 1"/>
  </body>
</worldbody>
<tendon>{tendon}</tendon>
<actuator>{actuator}</actuator>
<equality>{equality}</equality>
</mujoco>"""

PULLED = '<fixed name="{}" {}><joint joint="shoulder" coef="0.7"/><joint joint="elbow" coef="-0.4"/>'
PULLED += '<joint joint="slide" coef="1.5"/></fixed>'
AFFINE = 'gaintype="affine" biastype="affine" gainprm="5 0.3 0.2" biasprm="0.3 -2 -0.5"'

FEATURES: dict[str, dict[str, str]] = {
    "gravcomp": {"upper": 'gravcomp="0.7"', "lower": 'gravcomp="1.2"', "drone": 'gravcomp="0.5"'},
    "medium": {"medium": '<option density="60" viscosity="0.4" wind="1 -2 0.5"/>'},
    "tendon spring": {"tendon": PULLED.format("spring", 'stiffness="30" springlength="0.1"')},
    "tendon with slack": {"tendon": PULLED.format("slack", 'stiffness="30" springlength="-0.3 0.4"')},
    "tendon damper": {"tendon": PULLED.format("damper", 'damping="3"')},
    "tendon motor": {
        "tendon": PULLED.format("cable", ""),
        "actuator": '<motor name="winch" tendon="cable" gear="1.3" ctrlrange="-0.5 0.5"/>',
    },
    "tendon servo": {
        "tendon": PULLED.format("line", ""),
        "actuator": '<position name="reel" tendon="line" kp="20" kv="1" gear="-0.6" forcerange="-9 8"/>',
    },
    "rope": {
        "tendon": '<spatial name="rope" stiffness="40" damping="2" springlength="0.2"><site site="hook"/>'
        '<site site="middle"/><site site="tip"/><site site="eye"/></spatial>'
    },
    "bends": {
        "bends": '<geom name="knob" type="cylinder" size="0.08 0.2" pos="0.05 0 0.1" euler="1.5 0.1 0" contype="0" '
        'conaffinity="0"/><geom name="bead" size="0.1" pos="0.2 0.05 0.3" contype="0" conaffinity="0"/>'
        '<site name="aside" pos="0.05 0 0.4"/>',
        "tendon": '<spatial name="string" stiffness="40" damping="2" springlength="0.2"><site site="middle"/>'
        '<geom geom="knob" sidesite="aside"/><site site="tip"/><geom geom="bead"/><site site="eye"/>'
        '<pulley divisor="2"/><site site="hook"/><geom geom="knob"/><site site="tip"/></spatial>',
    },
    "hoist": {
        "tendon": '<spatial name="hoist"><site site="rotor"/><site site="tip"/></spatial>',
        "actuator": '<position name="lift" tendon="hoist" kp="15" kv="1"/>',
    },
    "gain without bias": {
        "actuator": '<general name="odd" joint="elbow" gainprm="4" biastype="affine" biasprm="0.1 -2 -0.1"/>'
    },
    "affine gain": {"actuator": f'<general name="affine" joint="shoulder" gear="0.8" {AFFINE}/>'},
    "one-sided force": {"actuator": '<motor name="puller" joint="slide" gear="2" forcerange="-3 0.5"/>'},
    "damper": {"actuator": '<damper name="brake" joint="elbow" kv="2" ctrlrange="0 1"/>'},
    "site force": {"actuator": '<motor name="thruster" site="rotor" gear="0 0 3 0 0.2 0.3"/>'},
    "site servo": {
        "actuator": '<general name="jet" site="tip" gear="1 2 3 0.1 0.2 0.3" gainprm="2" biastype="affine" '
        'biasprm="0.4 0 -0.3"/>'
    },
    "integrated velocity": {
        "actuator": '<intvelocity name="winder" joint="elbow" kp="6" kv="0.3" actrange="-0.5 0.4"/>'
    },
    "filter": {
        "actuator": '<general name="slow" joint="shoulder" dyntype="filter" dynprm="0.03" gainprm="7" '
        'biastype="affine" biasprm="0.2 -1 -0.3" ctrlrange="-1 1"/>'
    },
    "exact filter": {
        "actuator": '<position name="smooth" joint="slide" kp="8" kv=".5" timeconst="0.04" forcerange="-20 30"/>'
    },
    "early filter": {
        "actuator": '<general name="early" joint="slide" dyntype="filter" dynprm="0.03" actearly="true" '
        'gaintype="affine" gainprm="5 .2 .3"/>'
    },
    "muscle": {"actuator": '<muscle name="biceps" joint="elbow" lengthrange="-2 2" force="30" ctrlrange="0 1"/>'},
    "muscle of a tendon": {
        "tendon": PULLED.format("sinew", ""),
        "actuator": '<muscle name="triceps" tendon="sinew" gear="0.4" lengthrange="-1 1.2" scale="50" tausmooth="0.3" '
        'timeconst="0.02 0.05" range="0.6 1.3" forcerange="-40 0"/>',
    },
}
"""What each adds to the robot's parts, with forces that act at every moment."""

POLYNOMIAL = {"equality": '<joint joint1="elbow" joint2="shoulder" polycoef="0.1 0.8 -0.5 0.3 0.2" solref="0.05 1"/>'}
"""A mimic joint, which acts through a constraint."""


def with_features(names: Iterable[str], option: str = "") -> str:
    """The robot with some features."""
    parts = dict.fromkeys(("medium", "world", "upper", "lower", "bends", "drone", "tendon", "actuator", "equality"), "")
    parts["option"] = option
    for name in names:
        for part, text in {**FEATURES, "polynomial": POLYNOMIAL}[name].items():
            parts[part] += f" {text}"
    return ROBOT.format(**parts)
