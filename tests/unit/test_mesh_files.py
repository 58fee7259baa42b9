"""OBJ and STL files: triangles worked out by hand, and what is refused with which message."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import kinema as kn
from kinema.errors import ModelError
from kinema.scene.description import Mesh
from kinema.scene.io.meshes import parse_obj, parse_stl, read_mesh, scaled

SQUARE = b"v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
ASCII = b"""solid tri
  facet normal 0 0 1
    outer loop
      vertex 0 0 0
      vertex 1 0 0
      vertex 0 1e0 0
    endloop
  endfacet
endsolid tri
"""


def stl(*triangles: list[tuple[float, float, float]], header: bytes = b"", count: int | None = None) -> bytes:
    facets = (struct.pack("<12fH", 0, 0, 0, *(value for corner in t for value in corner), 0) for t in triangles)
    return header.ljust(80, b"\0") + struct.pack("<I", len(triangles) if count is None else count) + b"".join(facets)


A, B, C, D = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def corners(mesh: Mesh) -> list[list[tuple[float, ...]]]:
    assert mesh.vertices.dtype == np.float64 and mesh.faces.dtype == np.int32
    return [[tuple(vertex) for vertex in mesh.vertices[face]] for face in mesh.faces]


def test_polygons_become_fans():
    mesh = parse_obj(SQUARE + b"f 1 2 3 4\n", "m.obj")
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [0, 2, 3]])
    np.testing.assert_array_equal(mesh.vertices, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize("face", [b"1 2 3", b"1/1 2/1 3/1", b"1//1 2//1 3//1", b"1/1/1 2/1/1 3/1/1", b"-4 -3 -2"])
def test_corners_in_all_forms(face: bytes):
    text = b"# mesh\r\nvt 0 0\r\nvn 0 0 1\r\n" + SQUARE + b"s off\nf " + face + b" # triangle\r\n"
    ignored: set[str] = set()
    mesh = parse_obj(text, "m.obj", ignored)
    assert corners(mesh) == [[(0, 0, 0), (1, 0, 0), (1, 1, 0)]]  # the fourth vertex is not used
    assert len(mesh.vertices) == 3 and ignored == {"vt", "vn", "s"}


def test_negative_indices_count_back_from_where_they_stand():
    text = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 5 5 5\nf -4 -3 -1\n"
    assert corners(parse_obj(text, "m.obj"))[1] == [(0, 0, 0), (1, 0, 0), (5, 5, 5)]


def test_long_lines_weights_colours_and_faces_before_vertices():
    text = b"f 1 2 \\\n3\nv 0 0 0 1\nv 1 0 0 0.5 0.5 0.5\nv 0 1 \\\n 0\n"
    assert corners(parse_obj(text, "m.obj")) == [[A, B, C]]


def test_faces_without_three_different_corners_are_left_out():
    mesh = parse_obj(SQUARE + b"f 1 2\nf 1 1 2\nf 1 2 3\n", "m.obj")
    assert len(mesh.faces) == 1


def test_binary_and_ascii_stl_are_the_same():
    for data in (stl([A, B, C]), stl([A, B, C], header=b"solid not ascii"), ASCII, ASCII.upper()):
        mesh = parse_stl(data, "m.stl")
        assert corners(mesh) == [[A, B, C]]


def test_equal_corners_become_one_vertex():
    mesh = parse_stl(stl([A, C, B], [A, B, D], [A, D, C], [B, C, D], [A, A, B]), "m.stl")
    assert mesh.vertices.shape == (4, 3) and mesh.faces.shape == (4, 3)
    a, b, c = np.swapaxes(mesh.vertices[mesh.faces], 0, 1)
    assert (np.cross(a, b) * c).sum() / 6 == pytest.approx(1 / 6)  # closed, outwards
    assert len(parse_stl(stl([A, B, C], [(-0.0, 0.0, 0.0), C, D]), "m.stl").vertices) == 4


def test_a_mirrored_mesh_keeps_its_outside():
    mesh = parse_obj(SQUARE + b"f 1 2 3\n", "m.obj")
    assert corners(scaled(mesh, (2, 3, 4))) == [[(0, 0, 0), (2, 0, 0), (2, 3, 0)]]
    assert corners(scaled(mesh, (-1, 1, 1))) == [[(-1, 1, 0), (-1, 0, 0), (0, 0, 0)]]
    assert corners(scaled(mesh, (-1, -1, 1))) == [[(0, 0, 0), (-1, 0, 0), (-1, -1, 0)]]


def test_the_ending_decides_in_any_case(tmp_path: Path):
    (tmp_path / "m.STL").write_bytes(ASCII)
    assert len(read_mesh(tmp_path / "m.STL").faces) == 1
    (tmp_path / "m.wrl").write_bytes(ASCII)
    with pytest.raises(ModelError, match=r"m\.wrl: unsupported mesh format"):
        read_mesh(tmp_path / "m.wrl")
    with pytest.raises(ModelError, match="there is no such file"):
        read_mesh(tmp_path / "gone.obj")


NAN, INF = float("nan"), float("inf")
FACE = b"f 1 2 3\n"

REFUSED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("m.obj", b"", "m.obj: the mesh has no triangles"),
    "no faces": ("m.obj", SQUARE, "got: 4 vertices, 0 faces"),
    "only flat faces": ("m.obj", SQUARE + b"f 1 1 1\n", "the mesh has no triangles"),
    "index too large": ("m.obj", SQUARE + b"f 1 2 5\n", "m.obj:5: vertex 5 does not exist\n  expected: 1 to 4"),
    "index enormous": ("m.obj", SQUARE + b"f 1 2 99999999999999999999\n", "m.obj:5: vertex 99999999999999999999"),
    "index too negative": ("m.obj", SQUARE + b"f 1 2 -5\n", "m.obj:5: vertex -5 does not exist"),
    "index zero": ("m.obj", SQUARE + b"f 0 1 2\n", "m.obj:5: a corner of a face is malformed"),
    "index fraction": ("m.obj", SQUARE + b"f 1.5 1 2\n", "a corner of a face is malformed"),
    "index missing": ("m.obj", SQUARE + b"f /1 2 3\n", "a corner of a face is malformed"),
    "index with too many parts": ("m.obj", SQUARE + b"f 1/1/1/1 2 3\n", "a corner of a face is malformed"),
    "cut in a face": ("m.obj", SQUARE + b"f 1 2", "m.obj:5: a face has fewer than 3 corners: the file is cut off"),
    "cut after backslash": ("m.obj", SQUARE + FACE + b"f 1 \\", "the file is cut off"),
    "NaN vertex": ("m.obj", b"v nan 0 0\n" + FACE, "m.obj:1: a vertex is not finite or too large"),
    "huge vertex": ("m.obj", b"v 1e300 0 0\n" + FACE, "a vertex is not finite or too large"),
    "short vertex": ("m.obj", b"v 1 2\n" + FACE, "m.obj:1: a vertex needs 3 numbers"),
    "vertex of words": ("m.obj", b"v a b c\n" + FACE, "a vertex is not numeric"),
    "vertex with underscore": ("m.obj", b"v 1_0 0 0\n" + FACE, "a vertex is not numeric"),
    "unknown keyword": ("m.obj", SQUARE + b"vertex 1 2 3\n", "m.obj:5: not an OBJ keyword for polygons"),
    "bytes": ("m.obj", bytes(range(256)), "m.obj:"),
    "stl empty": ("m.stl", b"", "the STL file is cut off"),
    "stl header only": ("m.stl", stl(), "m.stl: the mesh has no triangles"),
    "stl cut": ("m.stl", stl([A, B, C])[:-1], "expected: 134 bytes for 1 triangles"),
    "stl of 4e9 triangles": ("m.stl", stl([A, B, C], count=2**32 - 1), "the STL file is cut off"),
    "stl too long": ("m.stl", stl([A, B, C]) + b"\0", "longer than its header says"),
    "stl NaN": ("m.stl", stl([A, B, C], [A, (NAN, 0, 0), C]), "m.stl: byte 134: triangle 1 has a corner"),
    "stl infinite": ("m.stl", stl([A, (INF, 0, 0), C]), "not finite"),
    "stl flat": ("m.stl", stl([A, A, B]), "the mesh has no triangles"),
    "ascii empty": ("m.stl", b"solid a\nendsolid a\n", "the mesh has no triangles"),
    "ascii cut": ("m.stl", ASCII[:-14], "the STL file is cut off"),
    "ascii cut in a loop": ("m.stl", ASCII[:70], "m.stl:5: the STL file is cut off"),
    "ascii two corners": ("m.stl", ASCII.replace(b"      vertex 1 0 0\n", b""), "m.stl:6: unexpected keyword"),
    "ascii four corners": (
        "m.stl",
        ASCII.replace(b"vertex 1 0 0", b"vertex 1 0 0\nvertex 2 0 0"),
        "m.stl:7: unexpected",
    ),
    "ascii NaN": ("m.stl", ASCII.replace(b"1e0", b"nan"), "m.stl:6: a vertex is not finite"),
    "ascii junk": ("m.stl", ASCII.replace(b"outer loop", b"inner loop"), "m.stl:3: unexpected keyword"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused_with_place_and_reason(tmp_path: Path, case: str):
    name, data, message = REFUSED[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError) as caught:
        read_mesh(tmp_path / name, name=name)
    assert message in str(caught.value)
    assert caught.value.where is not None and caught.value.where.startswith(name)


def test_a_large_mesh_is_read_in_linear_time():
    count = 100_000
    vertices, fan = b"v 0 0 0\n" * count, b"f " + b" ".join(b"%d" % i for i in range(1, count)) + b"\n"
    assert len(parse_obj(vertices + fan, "m.obj").faces) == count - 3
    assert len(parse_obj(vertices + fan + b"f" + b" 1 \\\n" * count + b"1\n", "m.obj").faces) == count - 3


def test_an_obj_file_is_read_whatever_its_ending(tmp_path: Path):
    (tmp_path / "flag.txt").write_bytes(SQUARE + b"f 1 2 3 4\n")
    mesh = kn.read_obj(tmp_path / "flag.txt")
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [0, 2, 3]])
    scene = kn.Scene()
    assert scene.add_cloth(mesh) == "cloth"
    (tmp_path / "flag.obj").write_bytes(SQUARE + b"f 1 2 9\n")
    with pytest.raises(ModelError, match=r"flag\.obj:5: vertex 9 does not exist"):
        kn.read_obj(tmp_path / "flag.obj")
