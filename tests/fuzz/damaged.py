"""Damages model files and loads them, in a process of its own: `python -m tests.fuzz.damaged KIND FIRST COUNT`.

Files are written to the working directory, with the seed of the last one, so that those of a crash can be looked at.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import resource
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.msh_files import FLAVOURS, msh
from tests.scene_files import collada, glb, gltf, packed

from kinema.errors import LeftOutWarning, ModelError
from kinema.scene import validate
from kinema.scene.description import Mesh, Robot, Tets
from kinema.scene.io.meshes import read_mesh
from kinema.scene.io.mjcf import IGNORABLE, read_mjcf
from kinema.scene.io.msh import read_msh
from kinema.scene.io.urdf import read_urdf

MEMORY = 4 << 30  # bytes of addresses for a process
SLOWEST = 2.0  # seconds of processor time for one file
MAY_BE_INFINITE = {"lower", "upper", "effort", "velocity", "force", "least_force"}

URDF = """<?xml version="1.0"?>
<robot name="arm">
  <material name="blue"><color rgba="0 0 1 1"/></material>
  <link name="world"/>
  <link name="base">
    <inertial>
      <origin xyz="0 0.1 0" rpy="0.1 0.2 0.3"/>
      <mass value="2.5"/>
      <inertia ixx="0.02" ixy="0.001" ixz="0" iyy="0.03" iyz="0" izz="0.04"/>
    </inertial>
    <visual>
      <origin xyz="0 0 0"/><geometry><mesh filename="part.obj" scale="1 1 2"/></geometry><material name="blue"/>
    </visual>
    <collision><geometry><box size="0.1 0.2 0.3"/></geometry></collision>
    <contact><lateral_friction value="0.8"/></contact>
  </link>
  <link name="upper">
    <inertial><mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.005"/></inertial>
    <collision><geometry><cylinder radius="0.05" length="0.4"/></geometry></collision>
    <collision><geometry><capsule radius="0.05" length="0.4"/></geometry></collision>
  </link>
  <link name="finger">
    <inertial><mass value="0.1"/><inertia ixx="0.001" iyy="0.001" izz="0.001"/></inertial>
    <collision><geometry><sphere radius="0.02"/></geometry></collision>
  </link>
  <link name="thumb">
    <inertial><mass value="0.1"/><inertia ixx="0.001" iyy="0.001" izz="0.001"/></inertial>
  </link>
  <joint name="fly" type="floating"><parent link="world"/><child link="base"/><origin xyz="0 0 1"/></joint>
  <joint name="turn" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 0.2" rpy="0 1.57 0"/><axis xyz="0 1 0"/>
    <limit lower="-1.5" upper="1.5" effort="40" velocity="3"/><dynamics damping="0.1" friction="0.2"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="upper"/><child link="finger"/><axis xyz="0 0 1"/>
    <limit lower="0" upper="0.1" effort="5" velocity="1"/>
  </joint>
  <joint name="follow" type="prismatic">
    <parent link="upper"/><child link="thumb"/><limit lower="0" upper="0.1" effort="5"/>
    <mimic joint="slide" multiplier="-1" offset="0.01"/>
  </joint>
  <transmission name="t"><type>simple</type></transmission>
</robot>
"""

MJCF = """<?xml version="1.0"?>
<mujoco model="arm">
  <compiler angle="radian"/>
  <option gravity="0 0 -9.81" density="1.2" viscosity="1e-5" wind="1 0 0"/>
  <default>
    <geom friction="0.8 0.005 0.0001" density="900"/>
    <default class="soft"><joint damping="0.5"/></default>
  </default>
  <asset>
    <mesh name="part" file="part.obj" scale="1 1 2"/>
    <hfield name="hills" nrow="3" ncol="3" size="2 2 0.5 0.1" elevation="0 0 1 0 2 0 1 0 0"/>
    <material name="blue" rgba="0 0 1 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <geom name="land" type="hfield" hfield="hills" pos="9 0 0"/>
    <body name="base" pos="0 0 1" euler="0.1 0.2 0.3">
      <freejoint name="fly"/>
      <inertial pos="0 0.1 0" mass="2.5" fullinertia="0.02 0.03 0.04 0.001 0 0"/>
      <geom name="hull" type="mesh" mesh="part" material="blue" contype="2" conaffinity="1"/>
      <geom type="box" size="0.05 0.1 0.15"/>
      <site name="imu" pos="0 0 0.1" quat="1 0 0 0"/>
      <body name="upper" pos="0 0 0.2" childclass="soft">
        <joint name="turn" type="hinge" axis="0 1 0" range="-1.5 1.5" armature="0.01" frictionloss="0.2" ref="0.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.05"/>
        <body name="finger" pos="0 0 0.4" gravcomp="0.5">
          <joint name="slide" type="slide" axis="0 0 1" range="0 0.1" stiffness="20" springref="0.02"/>
          <geom name="tip" type="cylinder" size="0.02 0.05" condim="4"/>
        </body>
        <body name="thumb" pos="0 0.1 0.4">
          <joint name="follow" type="slide" axis="0 0 1" limited="true" range="0 0.1"/>
          <geom name="ball" type="sphere" size="0.02" margin="0.01"/>
          <body name="nail" pos="0 0 0.1"><joint name="wobble" type="ball" range="0 0.5"/><geom size="0.01"/></body>
        </body>
      </body>
    </body>
  </worldbody>
  <contact><exclude body1="finger" body2="thumb"/><pair geom1="tip" geom2="floor" friction="0.8 0.8"/></contact>
  <tendon>
    <fixed name="measured"><joint joint="turn" coef="1"/></fixed>
    <fixed name="cable" stiffness="5" damping="0.1" springlength="0.1 0.2" limited="true" range="-1 1">
      <joint joint="turn" coef="0.5"/><joint joint="slide" coef="-2"/>
    </fixed>
  </tendon>
  <equality>
    <joint joint1="follow" joint2="slide" polycoef="0.01 -1 0.1 0 0"/>
    <connect name="tie" body1="finger" anchor="0 0 0.1" active="false"/>
  </equality>
  <actuator>
    <motor name="drive" joint="turn" gear="3" ctrlrange="-1 1" forcerange="-40 40"/>
    <position name="grip" joint="slide" kp="50" kv="2"/>
    <general name="pull" tendon="cable" gainprm="3" biastype="affine" biasprm="0.1 -2 -0.5" forcerange="-1 2"/>
    <motor name="push" site="imu" gear="0 0 1 0 0 0.1" ctrllimited="true" ctrlrange="0 1"/>
  </actuator>
  <sensor><gyro site="imu"/></sensor>
  <keyframe><key name="home" ctrl="0 0 0.5 0.1"/></keyframe>
</mujoco>
"""

OBJ = b"""# tetrahedron
mtllib none.mtl
o part
v 0 0 0
v 1.0 0 0
v 0 1e0 0
v 0 0 -1 1.0
vt 0 0
vn 0 0 1
f 1 3 2
f 1/1 2/1 4/1
f -4//1 -1//1 -2//1
f 2/1/1 3/1/1 4/1/1 2/1/1
"""
# MuJoCo refuses faces with normals beside faces without.
PLAIN_OBJ = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"

ASCII_STL = b"solid part\n" + b"".join(
    b"facet normal 0 0 0\nouter loop\nvertex %s\nvertex %s\nvertex %s\nendloop\nendfacet\n" % corners
    for corners in ((b"0 0 0", b"1 0 0", b"0 1 0"), (b"0 0 0", b"0 1 0", b"0 0 1.5e0"))
)
ASCII_STL += b"endsolid part\n"
BINARY_STL = bytes(80) + struct.pack("<I", 2) + b"".join(struct.pack("<12fH", *range(i, i + 12), 0) for i in (0, 5))

# What a hostile or careless hand writes where a value belongs.
VALUES = (
    *("nan", "inf", "-inf", "1e999", "-1", "0", "", " ", "1e30", "1e308", "1e-320", "0 0 0", "1 2 3", "1 2 3 4"),
    *("0x10", "1_0", "1,0", "\u0663", "abc", "a", "base", "thumb", "turn", "slide", "planar", "continuous", "fixed"),
    *("hinge", "ball", "free", "ellipsoid", "sdf", "mesh", "hfield", "part", "tip", "floor", "true", "inf 0", "1e9"),
    *(
        "../part.obj",
        "package://part.obj",
        "package://x/part.obj",
        "file:///dev/zero",
        "/dev/stdin",
        "http://x/part.obj",
    ),
    *("part.stl", "part.dae", "&#0;", "&lt;", "&x;", "<", "$(x)", "9" * 400, "." * 5000, "x" * 5000, "\ufffe", "\n"),
)
WORDS = [b"v", b"f", b"vertex", b"1e999", b"nan", b"-1", b"0", b"4294967296", b"9" * 30, b"1//", b"/", b"\\", b"#", b""]


def damage_bytes(data: bytes, draw: random.Random) -> bytes:
    """One change that knows nothing of the format."""
    if not data:
        return draw.randbytes(4)
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice((1, 2, 4, 16, 64, 256)))
    piece = data[start:end]
    kind = draw.randrange(7)
    if kind == 0:
        return data[:start] + bytes([data[start] ^ 1 << draw.randrange(8)]) + data[start + 1 :]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:start] + draw.randbytes(len(piece)) + data[start:]
    if kind == 3:
        return data[:start] + piece * draw.choice((2, 3, 50)) + data[end:]
    if kind == 4:
        return data[:start]
    if kind == 5:
        target = draw.randrange(len(data))
        return data[:target] + piece + data[target:]
    return data[:start] + draw.choice((b"\0", b"\xff", b"<!DOCTYPE a>", b"<!--", b"]]>", b"\n", b" ")) + data[start:]


def replace_one(pattern: str, text: str, draw: random.Random, new: Callable[[re.Match[str]], str]) -> str:
    """Change one match of a pattern, if there is one."""
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    match = draw.choice(found)
    return text[: match.start()] + new(match) + text[match.end() :]


def damage_xml(text: str, draw: random.Random) -> str:
    """One change that keeps the file an XML file, mostly."""
    attribute, element = r'(\w+)="([^"]*)"', r"<(\w+)[^<>]*/>"
    number = r'(?<=[" ])-?\d[\d.]*(?=[" ])'
    kind = draw.randrange(12)
    if kind >= 9:
        factor = draw.choice((-1, 0, 0.5, 0.99, 2, 1e3, 1e12, 1e-12))
        return replace_one(number, text, draw, lambda m: f"{float(m[0]) * factor:.17g}")
    if kind <= 2:
        value = draw.choice(VALUES)
        return replace_one(attribute, text, draw, lambda m: f'{m[1]}="{value}"')
    if kind == 3:  # one word of a value
        return replace_one(number, text, draw, lambda m: draw.choice(VALUES))
    if kind == 4:
        return replace_one(attribute, text, draw, lambda m: "")
    if kind == 5:
        other = draw.choice(re.findall(attribute, text) or [("", "")])[1]
        return replace_one(attribute, text, draw, lambda m: f'{m[1]}="{other}"')
    if kind == 6:
        return replace_one(element, text, draw, lambda m: m[0] * draw.choice((0, 0, 2)))
    if kind == 7:
        tags = ("link", "joint", "mass", "box", "mesh", "gazebo", "x", "xacro:if", "mimic")
        tag = draw.choice((*tags, "geom", "body", "site", "weld", "motor", "include", "replicate", "composite"))
        return replace_one(element, text, draw, lambda m: m[0].replace(m[1], tag, 1))
    # A whole link, joint or body, gone or twice.
    return replace_one(r"(?s)<(link|joint|body) .*?</\1>", text, draw, lambda m: m[0] * draw.choice((0, 2)))


def damage_words(data: bytes, draw: random.Random) -> bytes:
    """One change of a word or a line of a mesh file."""
    lines = data.split(b"\n")
    place = draw.randrange(len(lines))
    words = lines[place].split() or [b""]
    kind = draw.randrange(4)
    if kind == 0:
        words[draw.randrange(len(words))] = draw.choice(WORDS)
        lines[place] = b" ".join(words)
    elif kind == 1:
        del lines[place]
    elif kind == 2:
        lines.insert(draw.randrange(len(lines)), lines[place])
    else:
        lines[place] = b" ".join(words + [draw.choice(WORDS)])
    return b"\n".join(lines)


def damage_integer(data: bytes, draw: random.Random) -> bytes:
    """One number of 4 or 8 bytes of a binary file, replaced."""
    size = draw.choice((4, 8))
    start = draw.randrange(len(data))
    value = draw.choice((0, 1, 2, 4, 5, 11, 99, 2**31 - 1, 2**31, 2**32 - 1)) << draw.choice((0, 0, 0, 8 * (size - 4)))
    return data[:start] + value.to_bytes(size, draw.choice(("little", "big"))) + data[start + size :]


def numbers(value: object, name: str = "") -> list[tuple[str, float]]:
    """All numbers of a description with the names of their fields."""
    if isinstance(value, float):
        return [(name, value)]
    if isinstance(value, np.ndarray):
        return [(name, float(value.min())), (name, float(value.max()))]
    if isinstance(value, tuple):
        return [found for part in value for found in numbers(part, name)]
    if dataclasses.is_dataclass(value):
        return [found for f in dataclasses.fields(value) for found in numbers(getattr(value, f.name), f.name)]
    return []


def check_robot(robot: Robot) -> None:
    validate.check_robot(robot.name, robot)  # as when it is compiled
    for name, value in numbers(robot):
        assert math.isfinite(value) or (name in MAY_BE_INFINITE and not math.isnan(value)), f"{name} is {value}"
    seen: set[str | None] = {None}
    joints = {joint.name: joint for body in robot.bodies for joint in body.joints}
    for body in robot.bodies:
        assert body.parent in seen and body.name not in seen
        seen.add(body.name)
        poses = [body.pose, *(shape.pose for shape in body.shapes)]
        assert all(math.isclose(math.hypot(*pose.rotation), 1, abs_tol=1e-12) for pose in poses)
        assert all(size > 0 for shape in body.shapes for size in shape.size)
        for shape in body.shapes:
            if shape.mesh is not None:
                check_mesh(shape.mesh)
        for joint in body.joints:
            assert math.isclose(math.hypot(*joint.axis), 1, abs_tol=1e-12) and joint.lower <= joint.upper
            assert min(joint.damping, joint.friction, joint.effort) >= 0
            assert joint.mimic is None or joints[joint.mimic.joint].mimic is None
        if body.mass is not None:
            xx, xy, xz, yy, yz, zz = body.mass.inertia
            a, b, c = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            assert body.mass.mass > 0
            assert (a > 0 and a + b >= 0.989 * c) or not any(body.mass.inertia)


def check_mesh(mesh: Mesh) -> None:
    assert np.isfinite(mesh.vertices).all() and mesh.vertices.shape[1:] == (3,)
    assert len(mesh.faces) and mesh.faces.min() >= 0 and mesh.faces.max() < len(mesh.vertices)


def check_tets(mesh: Tets) -> None:
    assert np.isfinite(mesh.vertices).all() and mesh.vertices.shape[1:] == (3,)
    np.testing.assert_array_equal(np.unique(mesh.corners), np.arange(len(mesh.vertices)))
    corners = mesh.vertices[mesh.corners]
    assert np.linalg.det(corners[:, 1:] - corners[:, :1]).min() > 0


# -- one file of each kind -------------------------------------------------------------------------------------------


def damaged_xml(text: str, draw: random.Random, blind: bool) -> bytes:
    """A file with changes that know its format, or know nothing of it."""
    for _ in range(0 if blind else draw.choice((1, 1, 1, 2, 4))):
        text = damage_xml(text, draw)
    data = text.encode()
    for _ in range(draw.choice((1, 1, 3)) if blind else 0):
        data = damage_bytes(data, draw)
    return data


def damaged_text(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 2, 4))):
        data = damage_words(data, draw) if draw.random() < 0.6 else damage_bytes(data, draw)
    return data


def load_urdf(folder: Path, seed: int | None) -> None:
    (folder / "part.obj").write_bytes(OBJ)
    (folder / "part.stl").write_bytes(BINARY_STL)
    file, number = folder / "robot.urdf", seed or 0
    file.write_bytes(URDF.encode() if seed is None else damaged_xml(URDF, random.Random(seed), seed % 3 == 0))
    options = {"floating": number % 20 == 1, "repair": number % 7 == 1, "meshes": "skip" if number % 2 else "required"}
    options["strict"] = number % 5 == 4
    check_robot(read_urdf(file, **options))  # type: ignore[arg-type]


def load_mjcf(folder: Path, seed: int | None) -> None:
    (folder / "part.obj").write_bytes(PLAIN_OBJ)
    (folder / "part.stl").write_bytes(BINARY_STL)
    file = folder / "robot.xml"
    file.write_bytes(MJCF.encode() if seed is None else damaged_xml(MJCF, random.Random(seed), seed % 3 == 0))
    check_robot(read_mjcf(file, ignore=IGNORABLE if seed is not None and seed % 4 == 0 else ()))


def load_obj(folder: Path, seed: int | None) -> None:
    (folder / "part.obj").write_bytes(OBJ if seed is None else damaged_text(OBJ, random.Random(seed)))
    check_mesh(read_mesh(folder / "part.obj"))


def load_stl(folder: Path, seed: int | None) -> None:
    number = seed or 0
    data, draw = (BINARY_STL, ASCII_STL)[number % 2], random.Random(number)
    if seed is not None and number % 2:
        data = damaged_text(data, draw)
    elif seed is not None:
        for _ in range(draw.choice((1, 1, 2, 4))):
            data = damage_integer(data, draw) if draw.random() < 0.6 and data else damage_bytes(data, draw)
    (folder / "part.stl").write_bytes(data)
    check_mesh(read_mesh(folder / "part.stl"))


def load_msh(folder: Path, seed: int | None) -> None:
    number = seed or 0
    draw, flavour = random.Random(number), FLAVOURS[number % len(FLAVOURS)]
    data = msh(flavour)
    for _ in range(0 if seed is None else draw.choice((1, 1, 1, 2))):
        by_format = damage_integer if flavour.order else damage_words
        data = by_format(data, draw) if draw.random() < 0.6 and data else damage_bytes(data, draw)
    (folder / "part.msh").write_bytes(data)
    check_tets(read_msh(folder / "part.msh", repair=number % 4 == 1))


def load_dae(folder: Path, seed: int | None) -> None:
    text = collada(0.01).replace("1.4.1", "1.4")  # all numbers can be scaled
    (folder / "part.dae").write_bytes(
        text.encode() if seed is None else damaged_xml(text, random.Random(seed), seed % 3 == 0)
    )
    check_mesh(read_mesh(folder / "part.dae"))


def load_glb(folder: Path, seed: int | None) -> None:
    data, draw = glb(), random.Random(seed)
    if seed is not None and seed % 3:  # in the description, or in the numbers
        tree, numbers = gltf()
        text = json.dumps(tree)
        if seed % 3 == 1:
            text = replace_one(r"\d+", text, draw, lambda m: str(draw.choice((0, 1, 2, 3, 5, 12, 48, 72, 10**12))))
        else:
            numbers = damage_integer(numbers, draw)
        data = packed(text.encode(), numbers)
    elif seed is not None:
        data = damage_bytes(data, draw)
    (folder / "part.glb").write_bytes(data)
    check_mesh(read_mesh(folder / "part.glb"))


KINDS = {
    "urdf": load_urdf,
    "mjcf": load_mjcf,
    "obj": load_obj,
    "stl": load_stl,
    "msh": load_msh,
    "dae": load_dae,
    "glb": load_glb,
}


def main(kind: str, folder: Path, first: int, count: int) -> None:
    """Load the file as it is, then damaged for each seed; print how many loaded, were refused, and did neither."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore", LeftOutWarning)
    load, found = KINDS[kind], {"loaded": 0, "refused": 0, "wrong": []}
    load(folder, None)
    for seed in range(first, first + count):
        (folder / "seed").write_text(str(seed))
        begin = time.process_time()
        try:
            load(folder, seed)
            found["loaded"] += 1
        except ModelError as error:
            found["refused"] += 1
            if error.where is None or not re.search(r"\.(urdf|xml|obj|stl|msh|dae|glb)(:| |$)", error.where):
                found["wrong"].append(f"seed {seed}: no place in {error}")
        except Exception:
            found["wrong"].append(f"seed {seed}: {traceback.format_exc(limit=-3)}")
        if time.process_time() - begin > SLOWEST:
            found["wrong"].append(f"seed {seed}: {time.process_time() - begin:.1f} s")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path.cwd(), int(sys.argv[2]), int(sys.argv[3]))
