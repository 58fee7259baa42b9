"""COLLADA and glTF meshes: values worked out by hand, and hostile files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.scene_files import MIRRORED, TET, collada, glb, gltf

from kinema.errors import ModelError
from kinema.scene.io.meshes import read_mesh
from kinema.scene.io.urdf import read_urdf

pytest.importorskip("trimesh")
pytest.importorskip("collada")


def read(folder: Path, name: str, content: str | bytes):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_mesh(folder / name, name=name)


def volume(mesh) -> float:
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float((a * np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize("up", ["Z_UP", "Y_UP"])
@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_collada_in_metres_with_its_nodes_and_without_turning_axes(tmp_path: Path, unit: float, up: str):
    mesh = read(tmp_path, "a.dae", collada(unit, up=up))
    expected = unit * (np.stack([-TET[:, 1], TET[:, 0], TET[:, 2]], 1) + [5, 6, 7])
    found = np.unique(mesh.vertices.round(9), axis=0)
    np.testing.assert_allclose(found, np.unique(expected.round(9), axis=0), atol=1e-9)  # rounded to nine digits above
    assert len(mesh.faces) == 4
    np.testing.assert_allclose(volume(mesh), unit**3, rtol=1e-6)  # numbers in the file have single precision


def test_a_mirrored_node_keeps_the_outside(tmp_path: Path):
    assert volume(read(tmp_path, "a.dae", collada(matrix=MIRRORED))) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("ending", [".glb", ".gltf"])
def test_gltf(tmp_path: Path, ending: str):
    content: bytes = glb()
    if ending == ".gltf":
        import base64

        tree, data = gltf()
        uri = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
        tree["buffers"] = [{"byteLength": len(data), "uri": uri}]
        content = json.dumps(tree).encode()
    mesh = read(tmp_path, "a" + ending, content)
    np.testing.assert_allclose(np.sort(mesh.vertices, axis=0), np.sort(TET + [5, 6, 7], axis=0), atol=1e-6)
    assert volume(mesh) == pytest.approx(1.0, rel=1e-5)


def test_they_are_shapes_of_robots(tmp_path: Path):
    (tmp_path / "a.dae").write_text(collada(0.01))
    (tmp_path / "a.glb").write_bytes(glb())
    shapes = [
        f'<{on}><geometry><mesh filename="a.{end}" scale="2 2 2"/></geometry></{on}>'
        for on, end in (("visual", "dae"), ("collision", "glb"))
    ]
    (tmp_path / "r.urdf").write_text(f'<robot name="r"><link name="a">{"".join(shapes)}</link></robot>')
    drawn, hit = read_urdf(tmp_path / "r.urdf").bodies[0].shapes
    assert not drawn.collides and hit.collides
    assert volume(drawn.mesh) == pytest.approx(8e-6, rel=1e-5) and volume(hit.mesh) == pytest.approx(8.0, rel=1e-5)


NODES = "<instance_node url='#n'/>" * 40
BOMB = '<!DOCTYPE r [<!ENTITY a "aaaa">]>'
HUGE = [{"componentType": 5126, "count": 10**12, "type": "VEC3"}]
HOSTILE: dict[str, tuple[str, str | bytes, str]] = {
    "entities": ("a.dae", collada().replace("<COLLADA", BOMB + "<COLLADA", 1), "document types and entities"),
    "nodes that multiply": ("a.dae", collada(inside=NODES), "too many instances of nodes"),
    "index out of range": ("a.dae", collada().replace("1 2 3</p>", "1 2 9</p>"), "trimesh cannot read"),
    "not finite": ("a.dae", collada().replace("0 2 0", "0 nan 0"), "not finite"),
    "unit of nothing": ("a.dae", collada(0.0), "unit"),
    "cut off": ("a.dae", collada()[:700], "not well-formed"),
    "no geometry": ("a.dae", collada().replace('<instance_geometry url="#g"/>', ""), "no triangles"),
    "not glTF": ("a.glb", b"solid nothing", "not a binary glTF file"),
    "cut off glTF": ("a.glb", glb()[:400], "malformed"),
    "cut off in the numbers": ("a.glb", glb()[:-40], "trimesh cannot read"),
    "another file": ("a.glb", glb(buffers=[{"byteLength": 72, "uri": "../secret.bin"}]), "refers to other files"),
    "a URL": ("a.gltf", json.dumps(gltf(buffers=[{"uri": "https://example.org/a"}])[0]), "refers to other files"),
    "array without end": ("a.glb", glb(accessors=HUGE), "array is too large"),
    "two parents": ("a.glb", glb(nodes=[{"children": [1, 1]}, {"mesh": 0}]), "two parents"),
    "no description": ("a.gltf", "[]", "malformed"),
    "deep description": ("a.gltf", '{"a":' + "[" * 100_000, "malformed"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, case: str):
    name, content, message = HOSTILE[case]
    with pytest.raises(ModelError) as caught:
        read(tmp_path, name, content)
    assert message in str(caught.value) and name in str(caught.value)
