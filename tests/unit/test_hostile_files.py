"""Hostile robot files by hand: each is refused with its file, line and element, and what to do, in one paragraph."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import kinema as kn
from kinema.errors import KinemaError, ModelError

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
I = '<inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'
L = '<limit lower="-1" upper="1" effort="5" velocity="2"/>'


def two(joint: str, more: str = "") -> str:
    """Two links, and joints between them on lines 4 and 5."""
    return f'<robot name="r">\n<link name="a">{I}</link>\n<link name="b">{I}</link>\n{joint}\n{more}\n</robot>'


def three(*joints: str) -> str:
    """Three links, and joints between them from line 3 on."""
    lines = ['<robot name="r">', "".join(f'<link name="{name}">{I}</link>' for name in "abc"), *joints, "</robot>"]
    return "\n".join(lines)


def j(
    inner: str = "",
    kind: str = "revolute",
    parent: str = "a",
    child: str = "b",
    name: str = "j",
    limit: str = L,
) -> str:
    """A joint."""
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{limit}{inner}</joint>'


def heavy(mass: str = '<mass value="1"/>', inertia: str = 'ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"') -> str:
    """A link with this mass and inertia on line 2."""
    return f'<robot name="r">\n<link name="a"><inertial>{mass}<inertia {inertia}/></inertial></link></robot>'


def hit(geometry: str) -> str:
    """A link that collides with this geometry, on line 2."""
    solid = f"<collision><geometry>{geometry}</geometry></collision>"
    return f'<robot name="r">\n<link name="a">{I}{solid}</link></robot>'


W = "<mujoco>\n<worldbody>\n{}\n</worldbody>\n{}</mujoco>"
B = '<body name="b"><freejoint name="f"/><geom name="g" size=".1"/></body>'
H = '<body name="b"><joint name="h" axis="0 1 0"/><geom name="g" size=".1"/></body>'

# What the reader says first; its file has the name robot.urdf or robot.xml.
URDF = {
    "empty file": ("", "robot.urdf:1: not well-formed XML: no element found"),
    "only a comment": ("<!-- a robot -->", "robot.urdf:1: not well-formed XML: no element found"),
    "binary": ("\x00\x01\x02robot", "robot.urdf:1: a zero byte in the text"),
    "html page": ("<html><body>404 not found</body></html>", "robot.urdf:1 <html>: not a URDF file"),
    "xacro": (
        '<robot name="r" xmlns:xacro="x"><xacro:property name="m" value="1"/><link name="a"/></robot>',
        "robot.urdf:1 <xacro:property> 'm': a xacro command",
    ),
    "xacro expression": (
        heavy('<mass value="${m}"/>'),
        "robot.urdf:2 <mass> of link 'a': mass is a placeholder, not a value",
    ),
    "mjcf named urdf": ("<mujoco><worldbody/></mujoco>", "robot.urdf:1 <mujoco>: not a URDF file"),
    "sdf named urdf": ('<sdf version="1.6"><model name="m"/></sdf>', "robot.urdf:1 <sdf>: not a URDF file"),
    "no links": ('<robot name="r"></robot>', "robot.urdf:1 <robot> 'r': the robot has no links"),
    "two roots": (
        '<robot name="r">\n<link name="a"/>\n<link name="b"/></robot>',
        "robot.urdf:3 <link> 'b': a second root link: no joint has it as child",
    ),
    "cycle": (two(j(), j(parent="b", child="a", name="k")), "robot.urdf:5 <joint> 'k': the joints close a cycle"),
    "child twice": (
        three(j(child="c"), j(parent="b", child="c", name="k")),
        "robot.urdf:4 <joint> 'k': link 'c' has a second parent",
    ),
    "parent missing": (two(j(parent="base")), "robot.urdf:4 <parent> of joint 'j': there is no link 'base'"),
    "child is its parent": (two(j(child="a")), "robot.urdf:4 <joint> 'j': the joints close a cycle"),
    "no child element": (
        two('<joint name="j" type="fixed"><parent link="a"/></joint>'),
        "robot.urdf:4 <joint> 'j': <child> is missing",
    ),
    "joint without type": (
        two('<joint name="j"><parent link="a"/><child link="b"/></joint>'),
        "robot.urdf:4 <joint> 'j': attribute 'type' is missing",
    ),
    "unknown type": (two(j(kind="hinge")), "robot.urdf:4 <joint> 'j': unknown joint type"),
    "planar": (two(j(kind="planar")), "robot.urdf:4 <joint> 'j': planar joints are not supported"),
    "axis zero": (two(j('<axis xyz="0 0 0"/>')), "robot.urdf:4 <axis> of joint 'j': the axis is zero"),
    "axis two numbers": (two(j('<axis xyz="0 1"/>')), "robot.urdf:4 <axis> of joint 'j': xyz needs 3 numbers"),
    "axis word": (two(j('<axis xyz="0 one 0"/>')), "robot.urdf:4 <axis> of joint 'j': xyz is not a number"),
    "axis comma": (two(j('<axis xyz="0,1,0"/>')), "robot.urdf:4 <axis> of joint 'j': xyz needs 3 numbers"),
    "origin nan": (two(j('<origin xyz="nan 0 0"/>')), "robot.urdf:4 <origin> of joint 'j': xyz is not finite"),
    "origin inf": (
        two(j('<origin xyz="0 0 0" rpy="inf 0 0"/>')),
        "robot.urdf:4 <origin> of joint 'j': rpy is not finite",
    ),
    "origin huge": (two(j('<origin xyz="1e400 0 0"/>')), "robot.urdf:4 <origin> of joint 'j': xyz is not finite"),
    "limits crossed": (
        two(j(limit='<limit lower="1" upper="-1" effort="5" velocity="2"/>')),
        "robot.urdf:4 <limit> of joint 'j': lower is above upper",
    ),
    "negative effort": (
        two(j(limit='<limit lower="-1" upper="1" effort="-5" velocity="2"/>')),
        "robot.urdf:4 <limit> of joint 'j': effort is negative",
    ),
    "negative mass": (heavy('<mass value="-1"/>'), "robot.urdf:2 <mass> of link 'a': mass is negative"),
    "mass with unit": (heavy('<mass value="1 kg"/>'), "robot.urdf:2 <mass> of link 'a': mass needs one number"),
    "decimal comma": (heavy('<mass value="1,5"/>'), "robot.urdf:2 <mass> of link 'a': mass is not a number"),
    "inertia missing izz": (
        heavy(inertia='ixx=".1" iyy=".1" ixy="0" ixz="0" iyz="0"'),
        "robot.urdf:2 <inertia> of link 'a': attribute 'izz' is missing",
    ),
    "inertia without mass": (
        heavy(mass=""),
        "robot.urdf:2 <inertial> of link 'a': <mass> is missing",
    ),
    "inertia impossible": (
        heavy(inertia='ixx=".1" iyy=".1" izz="5" ixy="0" ixz="0" iyz="0"'),
        "robot.urdf:2 <inertia> of link 'a': the inertia violates the triangle inequality",
    ),
    "inertia in kg mm^2 misspelt": (
        heavy(inertia='Ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"'),
        "robot.urdf:2 <inertia> of link 'a': unknown attribute 'Ixx'",
    ),
    "two inertials": (
        f'<robot name="r">\n<link name="a">{I}{I}</link></robot>',
        "robot.urdf:2 <inertial> of link 'a': a second <inertial>",
    ),
    "link name twice": (
        '<robot name="r">\n<link name="a"/>\n<link name="a"/></robot>',
        "robot.urdf:3 <link> 'a': a second link of this name",
    ),
    "joint name twice": (
        f'<robot name="r">\n<link name="a"/><link name="b"/><link name="c"/>\n{j()}\n{j(child="c")}</robot>',
        "robot.urdf:4 <joint> 'j': a second joint of this name",
    ),
    "link without name": (
        '<robot name="r">\n<link/></robot>',
        "robot.urdf:2 <link> of robot 'r': attribute 'name' is missing",
    ),
    "collision without geometry": (
        f'<robot name="r">\n<link name="a">{I}<collision/></link></robot>',
        "robot.urdf:2 <collision> of link 'a': <geometry> is missing",
    ),
    "two geometries": (
        hit('<sphere radius="1"/><box size="1 1 1"/>'),
        "robot.urdf:2 <geometry> of link 'a': a geometry has one shape",
    ),
    "sphere without radius": (hit("<sphere/>"), "robot.urdf:2 <sphere> of link 'a': attribute 'radius' is missing"),
    "sphere negative": (hit('<sphere radius="-.1"/>'), "robot.urdf:2 <sphere> of link 'a': a size is not positive"),
    "box flat": (hit('<box size="1 0 1"/>'), "robot.urdf:2 <box> of link 'a': a size is not positive"),
    "cylinder height": (
        hit('<cylinder radius=".1" height="1"/>'),
        "robot.urdf:2 <cylinder> of link 'a': unknown attribute 'height'",
    ),
    "unknown shape": (
        hit('<cone radius=".1" length="1"/>'),
        "robot.urdf:2 <cone> of link 'a': unknown element inside <geometry>",
    ),
    "mesh without filename": (hit("<mesh/>"), "robot.urdf:2 <mesh> of link 'a': attribute 'filename' is missing"),
    "mesh missing": (hit('<mesh filename="hull.stl"/>'), "robot.urdf:2 <mesh> of link 'a': the file does not exist"),
    "mesh outside": (
        hit('<mesh filename="../../etc/passwd.stl"/>'),
        "robot.urdf:2 <mesh> of link 'a': the file lies outside the folders that the model may read",
    ),
    "mesh by http": (
        hit('<mesh filename="http://x/y.stl"/>'),
        "robot.urdf:2 <mesh> of link 'a': URLs are not supported",
    ),
    "mesh windows path": (
        hit('<mesh filename="C:\\\\m\\\\y.stl"/>'),
        "robot.urdf:2 <mesh> of link 'a': the file does not exist",
    ),
    "mesh scale zero": (
        hit('<mesh filename="tetra.obj" scale="0 1 1"/>'),
        "robot.urdf:2 <mesh> of link 'a': the scale has a zero",
    ),
    "mesh of step": (hit('<mesh filename="part.step"/>'), "robot.urdf:2 <mesh> of link 'a': unsupported mesh format"),
    "mimic of nothing": (two(j('<mimic joint="k"/>')), "robot.urdf:4 <mimic> of joint 'j': there is no joint 'k'"),
    "mimic of itself": (
        two(j('<mimic joint="j"/>')),
        "robot.urdf:4 <mimic> of joint 'j': joints mimic each other in a cycle",
    ),
    "mimic circle": (
        f'<robot name="r">\n<link name="a">{I}</link><link name="b">{I}</link><link name="c">{I}</link>\n'
        + j('<mimic joint="k"/>')
        + "\n"
        + j('<mimic joint="j"/>', parent="b", child="c", name="k")
        + "</robot>",
        "robot.urdf:3 <mimic> of joint 'j': joints mimic each other in a cycle",
    ),
    "mimic without joint": (
        two(j('<mimic multiplier="2"/>')),
        "robot.urdf:4 <mimic> of joint 'j': attribute 'joint' is missing",
    ),
    "damping negative": (
        two(j('<dynamics damping="-1"/>')),
        "robot.urdf:4 <dynamics> of joint 'j': damping is negative",
    ),
    "friction word": (
        two(j('<dynamics friction="low"/>')),
        "robot.urdf:4 <dynamics> of joint 'j': friction is not a number",
    ),
    "unclosed tag": (
        '<robot name="r">\n<link name="a">\n</robot>',
        "robot.urdf:3: not well-formed XML: mismatched tag",
    ),
    "unquoted attribute": ("<robot name=r/>", "robot.urdf:1: not well-formed XML: not well-formed (invalid token)"),
    "attribute twice": (
        '<robot name="r">\n<link name="a" name="b"/></robot>',
        "robot.urdf:2: not well-formed XML: duplicate attribute",
    ),
    "entity bomb": (
        '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><robot name="&b;"/>',
        "robot.urdf:1: document types and entities are not supported: they can include files and expand to huge texts",
    ),
    "external entity": (
        '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><robot name="&a;"/>',
        "robot.urdf:1: document types and entities are not supported: they can include files and expand to huge texts",
    ),
    "deep nesting": (
        '<robot name="r">' + "<link name='a'>" * 3000 + "</link>" * 3000 + "</robot>",
        "robot.urdf:1: elements are nested too deep",
    ),
    "namespace": ('<u:robot xmlns:u="urdf" name="r"/>', "robot.urdf:1 <u:robot> 'r': not a URDF file"),
}
MJCF = {
    "empty": ("", "robot.xml:1: not well-formed XML: no element found"),
    "urdf named xml": ('<robot name="r"><link name="a"/></robot>', "robot.xml:1 <robot> 'r': this is a URDF model"),
    "unknown element": (W.format('<bodi name="b"/>', ""), "robot.xml:3: MuJoCo cannot compile the model"),
    "unknown attribute": (
        W.format('<body name="b" position="0 0 1"/>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "size missing": (
        W.format('<body name="b"><freejoint/><geom type="box"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "size word": (
        W.format('<body name="b"><freejoint/><geom size="big"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "size nan": (
        W.format('<body name="b"><freejoint/><geom size="nan"/></body>', ""),
        "robot.xml:3 <geom> of body 'b': size is not finite",
    ),
    "name twice": (W.format(B + B, ""), "robot.xml:3: MuJoCo cannot compile the model"),
    "no mass": (W.format('<body name="b"><freejoint/></body>', ""), "robot.xml:3: MuJoCo cannot compile the model"),
    "inner freejoint": (
        W.format('<body name="b"><geom size=".1"/><body name="c"><freejoint/><geom size=".1"/></body></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "range crossed": (
        W.format('<body name="b"><joint name="h" range="1 -1" limited="true"/><geom size=".1"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "actuator of nothing": (
        W.format(H, '<actuator><motor joint="k"/></actuator>'),
        "robot.xml:5: MuJoCo cannot compile the model",
    ),
    "include missing": (
        '<mujoco>\n<include file="other.xml"/>\n</mujoco>',
        "robot.xml:2 <include>: the file does not exist",
    ),
    "include itself": (
        '<mujoco>\n<include file="robot.xml"/>\n</mujoco>',
        "robot.xml:2: MuJoCo cannot compile the model",
    ),
    "include outside": (
        '<mujoco>\n<include file="/etc/passwd"/>\n</mujoco>',
        "robot.xml:2 <include>: the file lies outside the folders that the model may read",
    ),
    "mesh too few": (
        W.format(
            '<body name="b"><freejoint/><geom type="mesh" mesh="m"/></body>',
            '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0"/></asset>',
        ),
        "robot.xml:5: MuJoCo cannot compile the model",
    ),
    "mesh unknown": (
        W.format('<body name="b"><freejoint/><geom type="mesh" mesh="m"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "plugin": (
        '<mujoco>\n<extension><plugin plugin="mujoco.elasticity.cable"/></extension>\n<worldbody>'
        + B
        + "</worldbody></mujoco>",
        "robot.xml:2 <extension>: plugins are not supported",
    ),
    "flex": (
        '<mujoco>\n<worldbody><flexcomp name="f" type="grid" count="3 3 1" spacing=".1 .1 .1"/></worldbody></mujoco>',
        "robot.xml:2 <flexcomp> 'f': deformable bodies are not supported",
    ),
    "composite": (
        '<mujoco>\n<worldbody><composite type="cable" count="3 1 1" curve="s"/></worldbody></mujoco>',
        "robot.xml:2 <composite>: composite bodies are not supported",
    ),
    "hfield moving": (
        W.format(
            '<body name="b"><freejoint/><geom type="hfield" hfield="h"/><geom size=".1"/></body>',
            '<asset><hfield name="h" nrow="3" ncol="3" size="1 1 1 1"/></asset>',
        ),
        "terrain 'MuJoCo Model/b/0' is on a moving body",
    ),
    "huge hfield": (
        W.format(
            '<geom type="hfield" hfield="h"/>' + B,
            '<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>',
        ),
        "robot.xml:5 <hfield> 'h': nrow is too large",
    ),
    "replicate bomb": (
        '<mujoco>\n<worldbody><replicate count="1000000">' + B + "</replicate></worldbody></mujoco>",
        "robot.xml:2 <replicate>: count is too large",
    ),
    "keyframe of other size": (
        W.format(H, '<keyframe><key name="home" qpos="1 2 3"/></keyframe>'),
        "robot.xml: MuJoCo cannot compile the model",
    ),
    "default class missing": (
        W.format('<body name="b"><freejoint/><geom class="x" size=".1"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "negative stiffness": (
        W.format('<body name="b"><joint name="h" stiffness="-1"/><geom size=".1"/></body>', ""),
        "robot.xml:3 <joint> 'h': stiffness of joint 'h' is negative",
    ),
    "negative damping": (
        W.format('<body name="b"><joint name="h" damping="-1"/><geom size=".1"/></body>', ""),
        "robot.xml:3 <joint> 'h': damping of joint 'h' is negative",
    ),
    "sdf file": ('<sdf version="1.6"><model name="m"/></sdf>', "robot.xml:1 <sdf>: not an MJCF model"),
    "usd text": ("#usda 1.0\n(\n)\n", "robot.xml:1: not well-formed XML: syntax error"),
    "unclosed": ("<mujoco>\n<worldbody>\n</mujoco>", "robot.xml:3: not well-formed XML: mismatched tag"),
    "inertia impossible": (
        W.format('<body name="b"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 5"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
    "negative mass": (
        W.format('<body name="b"><freejoint/><geom size=".1" mass="-1"/></body>', ""),
        "robot.xml:3: MuJoCo cannot compile the model",
    ),
}
ENCODED = {
    "UTF-16": ('<?xml version="1.0"?><robot name="r"><link name="a"/></robot>'.encode("utf-16"), "the file is UTF-16"),
    "Latin-1": ('<robot name="r">\n<link name="\xe4"/></robot>'.encode("latin-1"), "robot.urdf:2: not UTF-8"),
    "another encoding": (b'<?xml version="1.0" encoding="koi8-r"?><robot name="\xd1\x84"/>', "unsupported encoding"),
    "a zip archive": (b"PK\x03\x04\x14\x00\x00\x00", "a zero byte in the text"),
    "cut in a character": ('<robot name="\xe4'.encode()[:-1], "not UTF-8"),
}
WANTS_A_FIX = re.compile(r"^  (fix|expected): |MuJoCo cannot compile", re.MULTILINE)


def check(error: KinemaError, name: str, said: str) -> None:
    """In one paragraph: what was said first, where, and what to do; the error has no other cause."""
    told = str(error)
    first = told.splitlines()[0]
    assert said in first, f"{first!r}, not {said!r}"
    assert name in first or "MuJoCo Model/" in first, "it names the file, or the shape of the compiled model"
    assert "Traceback" not in told and "Error:" not in first and len(told.splitlines()) <= 8
    assert WANTS_A_FIX.search(told), f"no way out: {told}"
    assert error.__suppress_context__ or error.__context__ is None, "another exception would be printed above it"


def refusal(file: Path) -> KinemaError:
    """The error of reading and compiling a file."""
    with warnings.catch_warnings(), pytest.raises(KinemaError) as caught:
        warnings.simplefilter("ignore", kn.LeftOutWarning)
        scene = kn.Scene()
        scene.add_ground()
        scene.add_robot(str(file))
        kn.compile(scene)
    return caught.value


@pytest.mark.parametrize("name", URDF)
def test_urdf(name: str, tmp_path: Path):
    text, said = URDF[name]
    (tmp_path / "tetra.obj").write_text(TETRAHEDRON)
    (tmp_path / "part.step").write_text("ISO-10303-21;")
    file = tmp_path / "robot.urdf"
    file.write_text(text)
    check(refusal(file), "robot.urdf", said)


@pytest.mark.parametrize("name", MJCF)
def test_mjcf(name: str, tmp_path: Path):
    pytest.importorskip("mujoco")
    text, said = MJCF[name]
    file = tmp_path / "robot.xml"
    file.write_text(text)
    check(refusal(file), "robot.xml", said)


@pytest.mark.parametrize("name", ENCODED)
def test_encodings(name: str, tmp_path: Path):
    data, said = ENCODED[name]
    file = tmp_path / "robot.urdf"
    file.write_bytes(data)
    check(refusal(file), "robot.urdf", said)


def test_a_wrong_time_step_is_refused_with_its_options():
    pytest.importorskip("mujoco")
    with pytest.raises(ModelError, match="<text> <option>: the time step is not positive"):
        kn.Scene.from_mjcf(f'<mujoco><option timestep="-1"/><worldbody>{B}</worldbody></mujoco>')


@pytest.mark.parametrize("suffix", ["sdf", "usd", "xacro", "stl", ""])
def test_other_kinds_of_files_are_named(suffix: str, tmp_path: Path):
    file = tmp_path / (f"robot.{suffix}" if suffix else "robot")
    file.write_text("x")
    with pytest.raises(ModelError, match="unknown file type: .*robot"):
        kn.Scene().add_robot(str(file))


@pytest.mark.parametrize("read", [kn.read_urdf, kn.read_mjcf])
def test_what_is_not_a_file(read, tmp_path: Path):
    if read is kn.read_mjcf:
        pytest.importorskip("mujoco")
    loop = tmp_path / "loop.xml"
    loop.symlink_to(loop)
    for path in (tmp_path / "missing.xml", tmp_path, loop, "/dev/zero"):
        with pytest.raises(ModelError) as caught:
            read(path)
        assert str(path) in str(caught.value) and "Traceback" not in str(caught.value)


def test_there_are_many():
    assert len(URDF) + len(MJCF) + len(ENCODED) >= 60
