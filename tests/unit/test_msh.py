"""MSH files: all flavours give the same mesh, and what is refused with which place and message."""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.msh_files import FLAVOURS, NODE_TAGS, POINTS, TETS, Flavour, msh

from kinema.errors import ModelError
from kinema.scene.description import Tets
from kinema.scene.io.msh import parse_msh, read_msh
from kinema.scene.shapes.ball import ball

EACH = pytest.mark.parametrize("flavour", FLAVOURS, ids=[f"{f.version}{f.order or 't'}" for f in FLAVOURS])
TEXT2, LITTLE2, BIG2, TEXT4, LITTLE4, BIG4 = FLAVOURS


def read(tmp_path: Path, data: bytes, *, repair: bool = False) -> Tets:
    file = tmp_path / "mesh.msh"
    file.write_bytes(data)
    return read_msh(file, repair=repair)


@EACH
def test_all_flavours_give_the_same_mesh(flavour: Flavour, tmp_path: Path):
    with pytest.warns(UserWarning, match=r"mesh\.msh: left out 1 triangles$"):
        mesh = read(tmp_path, msh(flavour))
    np.testing.assert_array_equal(mesh.vertices, POINTS[:5])  # the sixth has no use
    np.testing.assert_array_equal(mesh.corners, [[0, 1, 2, 3], [1, 4, 2, 3]])
    assert mesh.vertices.dtype == np.float64 and mesh.corners.dtype == np.int32


@EACH
def test_a_larger_mesh_comes_back_to_the_bit(flavour: Flavour, tmp_path: Path):
    made = ball(0.3, 3)
    tags = np.random.default_rng(0).permutation(10 * len(made.vertices))[: len(made.vertices)] + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left out
        mesh = read(tmp_path, msh(flavour, made.vertices, tags.tolist(), tags[made.corners].tolist(), triangle=None))
    np.testing.assert_array_equal(mesh.vertices, made.vertices)
    np.testing.assert_array_equal(mesh.corners, made.corners)


def test_other_sections_and_line_ends_do_not_matter(tmp_path: Path):
    data = msh(TEXT4, triangle=None)
    extra = b'$PhysicalNames\n1\n3 1 "$Nodes"\n$EndPhysicalNames\n\n$Entities\n0 0 0 0\n$EndEntities\n'
    data = data.replace(b"$Nodes\n", extra + b"$Nodes\n", 1) + b"$NodeData\n1 2 3\n$EndNodeData\n\n  \n"
    assert len(read(tmp_path, data.replace(b"\n", b"\r\n")).corners) == 2
    binary = msh(LITTLE4, triangle=None)
    entities = b"$Entities\n" + bytes(range(256)) + b"\n$EndEntities\n"
    assert len(read(tmp_path, binary.replace(b"$Nodes\n", entities + b"$Nodes\n", 1)).corners) == 2


def test_parametric_nodes_are_read(tmp_path: Path):
    data = msh(TEXT4, triangle=None).replace(b"3 1 0 1\n3\n0.0 0.0 0.0", b"2 1 1 1\n3\n0.0 0.0 0.0 0.5 0.5")
    np.testing.assert_array_equal(read(tmp_path, data).vertices, POINTS[:5])


def test_blocks_may_be_empty_or_hold_one_element(tmp_path: Path):
    """As Gmsh writes them: an entity without nodes in 4.1, a block for each element in 2.2."""
    text = msh(TEXT4, triangle=None).replace(b"2 6 3 40\n", b"3 6 3 40\n2 8 1 0\n")
    empty = struct.pack("<3iQ", 2, 8, 1, 0)
    binary = msh(LITTLE4, triangle=None).replace(
        struct.pack("<4Q", 2, 6, 3, 40), struct.pack("<4Q", 3, 6, 3, 40) + empty
    )
    header, first = struct.pack(">3i", 4, 2, 2), struct.pack(">7i", 1, 7, 1, *TETS[0])
    one = struct.pack(">3i", 4, 1, 2)
    single = msh(BIG2, triangle=None).replace(header + first, one + first + one)
    for data in (text, binary, single):
        np.testing.assert_array_equal(read(tmp_path, data).corners, [[0, 1, 2, 3], [1, 4, 2, 3]])


@EACH
def test_bad_elements_are_refused_with_their_number_or_repaired(flavour: Flavour, tmp_path: Path):
    flat = (3, 10, 11, 11)
    turned = (10, 11, 31, 25)
    again = (25, 11, 10, 3)
    tets = (TETS[0], turned, flat, again)
    place = r"mesh\.msh(:\d+|: byte \d+): element "
    for bad, tag, number, message in ((turned, 3, 2, "inverted"), (flat, 3, 2, "degenerate")):
        with pytest.raises(ModelError, match=place + f"{tag}, number {number} of the file from 0: .* is {message}"):
            read(tmp_path, msh(flavour, tets=(TETS[0], bad)))
    with pytest.raises(ModelError, match="element 4, number 3 .*a duplicate"):
        read(tmp_path, msh(flavour, tets=(*TETS, TETS[0])))
    with pytest.warns(UserWarning, match="repaired: 1 inverted flipped, 1 degenerate dropped, 1 duplicates dropped"):
        mesh = read(tmp_path, msh(flavour, tets=tets), repair=True)
    np.testing.assert_array_equal(mesh.corners, [[0, 1, 2, 3], [1, 2, 3, 4]])
    corners = mesh.vertices[mesh.corners]
    assert np.linalg.det(corners[:, 1:] - corners[:, :1]).min() > 0
    with pytest.raises(ModelError, match="no tetrahedra"):
        read(tmp_path, msh(flavour, tets=(flat,), triangle=None), repair=True)


def test_places_are_exact(tmp_path: Path):
    turned = (TETS[0], (10, 11, 31, 25))
    with pytest.raises(ModelError) as text:
        read(tmp_path, msh(TEXT2, tets=turned))
    line = int(re.search(r"msh:(\d+):", str(text.value))[1])  # type: ignore[index]
    assert msh(TEXT2, tets=turned).split(b"\n")[line - 1] == b"3 4 2 7 1 10 11 31 25"
    for flavour, record in ((BIG2, ">7i"), (LITTLE4, "<5Q")):
        numbers = (3, 7, 1) if flavour is BIG2 else (3,)
        with pytest.raises(ModelError) as binary:
            read(tmp_path, msh(flavour, tets=turned))
        byte = int(re.search(r"byte (\d+)", str(binary.value))[1])  # type: ignore[index]
        data = msh(flavour, tets=turned)
        assert struct.unpack_from(record, data, byte) == (*numbers, 10, 11, 31, 25)


def swapped(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) >= 1, old
    return data.replace(old, new, 1)


T2, T4, L2, L4 = msh(TEXT2), msh(TEXT4), msh(LITTLE2), msh(LITTLE4)
HEADER = b"$MeshFormat\n4.1 0 8\n$EndMeshFormat\n"
COUNT4 = struct.pack("<4Q", 2, 6, 3, 40)  # of the nodes
ELEMENTS4 = struct.pack("<4Q", 2, 3, 1, 3)
BLOCK4 = struct.pack("<3iQ", 3, 1, 0, 5)
TETS2 = struct.pack("<3i", 4, 2, 2)
MANY = swapped(L4, COUNT4, struct.pack("<4Q", 2, 2**60, 3, 40))
NAN = np.full(3, np.nan).tobytes()
CUT = "cut off"

# Name, file, what the message says, and where: a line, a byte, or the file.
HOSTILE = [
    ("empty", b"", "not an MSH file", ":1"),
    ("another kind", b"solid part\nendsolid\n", "not an MSH file", ":1"),
    ("zeros", bytes(1000), "not an MSH file", ":1"),
    ("header alone", b"$MeshFormat\n", CUT, ":1"),
    ("format without its end", b"$MeshFormat\n4.1 0 8\n", CUT, ":2"),
    ("format cut short", swapped(T4, b"4.1 0 8", b"4.1 0"), "three numbers", ":2"),
    ("version 4.0", swapped(T4, b"4.1 0 8", b"4 0 8"), "unsupported MSH version", ":2"),
    ("version 1", b"$NOD\n1\n1 0 0 0\n$ENDNOD\n", "not an MSH file", ":1"),
    ("version of words", swapped(T4, b"4.1", b"nan"), "unsupported MSH version", ":2"),
    ("file type", swapped(T4, b"4.1 0 8", b"4.1 2 8"), "file type", ":2"),
    ("data size", swapped(T4, b"4.1 0 8", b"4.1 0 4"), "unknown size", ":2"),
    ("byte order", swapped(L4, struct.pack("<i", 1), struct.pack("<i", 3)), "byte order", ": byte 20"),
    ("wrong byte order of 4.1", swapped(L4, struct.pack("<i", 1), struct.pack(">i", 1)), "malformed", ": byte"),
    ("wrong byte order of 2.2", swapped(L2, struct.pack("<i", 1), struct.pack(">i", 1)), ".", ": byte"),
    ("text said to be binary", swapped(T2, b"2.2 0 8", b"2.2 1 8"), "byte order", ": byte 20"),
    ("binary said to be text", swapped(L2, b"2.2 1 8", b"2.2 0 8"), "does not end", ":3"),
    ("nothing after the format", HEADER, "no section \\$Nodes", ":3"),
    ("no elements", T4[: T4.index(b"$Elements")], "no section \\$Elements", ":"),
    ("elements before nodes", HEADER + T4[T4.index(b"$Elements") :], "comes before", ":4"),
    ("two sections of nodes", T4 + T4[T4.index(b"$Nodes") : T4.index(b"$Elements")], "a second section", ":"),
    ("unknown section", swapped(T4, b"$Nodes", b"$Node"), "unknown section(.|\n)*'Nodes'", ":4"),
    ("text between sections", swapped(T4, b"$Nodes", b"hello\n$Nodes"), "expected a section", ":4"),
    ("skipped section without end", swapped(T4, b"$Nodes", b"$Entities\n$Nodes"), "has no end", ":4"),
    ("nodes without end", swapped(T4, b"$EndNodes\n", b""), "does not end", ":"),
    ("elements without end", swapped(T4, b"$EndElements\n", b""), CUT, ":"),
    ("end of another section", swapped(L2, b"$EndNodes", b"$EndElements"), "does not end", ": byte"),
    ("cut in the nodes", T4[: T4.index(b"1.0 0.0 0.0")], CUT, ":"),
    ("cut in the elements", L4[:-60], CUT, ": byte"),
    ("cut in a binary node", L2[:100], CUT, ": byte"),
    ("fewer nodes than said", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n7\n"), "ends too early", ":12"),
    ("more nodes than said", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n5\n"), "does not end", ":11"),
    ("blocks beyond the count", swapped(T4, b"2 6 3 40", b"2 5 3 40"), "wrong number of nodes", ":9"),
    ("fewer nodes in blocks", swapped(T4, b"2 6 3 40", b"2 7 3 40"), "number of nodes is wrong", ":"),
    ("fewer elements in blocks", swapped(T4, b"2 3 1 3", b"2 4 1 3"), "number of elements is wrong", ":"),
    ("negative count", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n-6\n"), "negative", ":5"),
    ("negative count of a block", swapped(T4, b"3 1 0 5", b"3 1 0 -5"), "wrong number of nodes", ":9"),
    ("negative binary count", swapped(L2, TETS2, struct.pack("<3i", 4, -2, 2)), "wrong number", ": byte"),
    ("empty binary block", swapped(L2, TETS2, struct.pack("<3i", 4, 0, 2)), "has no elements", ": byte"),
    ("negative labels", swapped(L2, TETS2, struct.pack("<3i", 4, 2, -2)), "number of labels", ": byte"),
    ("huge labels", swapped(L2, TETS2, struct.pack("<3i", 4, 2, 2**31 - 1)), "number of labels", ": byte"),
    ("huge count", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n4000000000000\n"), "ends too early", ":12"),
    ("huge count of 2.2", swapped(L2, b"$Nodes\n6\n", b"$Nodes\n4000000000000\n"), CUT, ": byte"),
    ("huge count of blocks", swapped(L4, COUNT4, struct.pack("<4Q", 2**61, 2**61, 3, 40)), ".", ": byte"),
    ("count of 64 ones", swapped(L4, COUNT4, b"\xff" * 32), "far too large", ": byte"),
    ("huge block", swapped(MANY, BLOCK4, struct.pack("<3iQ", 3, 1, 0, 2**59)), CUT, ": byte"),
    ("count with a point", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n6.0\n"), "number of nodes", ":5"),
    ("count with an underscore", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n0_6\n"), "number of nodes", ":5"),
    ("count of many digits", swapped(T2, b"$Nodes\n6\n", b"$Nodes\n" + b"9" * 5000 + b"\n"), "number of nodes", ":5"),
    ("NaN", swapped(T2, b"3 0.0 0.0 0.0", b"3 0.0 nan 0.0"), "node 3 is not finite", ":6"),
    ("infinite", swapped(T4, b"0.0 0.0 0.0", b"0.0 1e999 0.0"), "node 3 is not finite", ":8"),
    ("too large", swapped(T4, b"0.0 0.0 0.0", b"0.0 1e31 0.0"), "too large", ":8"),
    ("binary NaN", swapped(L2, np.array(POINTS[1]).tobytes(), NAN), "node 10 is not finite", ": byte"),
    ("coordinate of words", swapped(T2, b"3 0.0 0.0 0.0", b"3 0.0 x 0.0"), "not numeric", ":6"),
    ("coordinate with an underscore", swapped(T2, b"3 0.0 0.0 0.0", b"3 0.0 1_0 0.0"), "not numeric", ":6"),
    ("two coordinates", swapped(T2, b"3 0.0 0.0 0.0", b"3 0.0 0.0"), "3 coordinates", ":6"),
    ("four coordinates", swapped(T4, b"0.0 0.0 0.0", b"0.0 0.0 0.0 0.0"), "3 numbers here", ":8"),
    ("dimension of a block", swapped(T4, b"3 1 0 1", b"4 1 0 1"), "malformed", ":6"),
    ("long line", swapped(T2, b"3 0.0", b"3 " + b" " * 100_000 + b"0.0"), "too long", ":"),
    ("no such node", msh(TEXT4, tets=(TETS[0], (10, 31, 11, 26))), "node 26 does not exist", ":27: element 3"),
    ("node 0", msh(LITTLE2, tets=(TETS[0], (10, 31, 11, 0))), "node 0 does not exist", ": byte"),
    ("negative node", msh(TEXT2, tets=(TETS[0], (10, 31, 11, -3))), "node -3 does not exist", ":17: element 3"),
    ("node above all", msh(BIG4, tets=(TETS[0], (10, 31, 11, 2**60))), "does not exist", ": byte"),
    ("tag of 64 ones", msh(LITTLE4, tets=(TETS[0], (10, 31, 11, 2**64 - 1))), "far too large", ": byte"),
    ("no nodes", msh(TEXT2, points=(), node_tags=()), "does not exist", ":10: element 2"),
    ("node tag twice", msh(TEXT4, node_tags=(3, 10, 11, 25, 31, 11)), "node 11 is defined twice", ":19"),
    ("node tag 0", msh(LITTLE2, node_tags=(0, *NODE_TAGS[1:])), "not positive", ": byte"),
    ("element tag twice", msh(BIG4, element_tags=(1, 2, 2)), "element 2 is defined twice", ": byte"),
    ("kind of element", msh(TEXT2, kind=99), "unknown element type", ":16"),
    ("negative kind", swapped(L2, TETS2, struct.pack("<3i", -4, 2, 2)), "unknown element type", ": byte"),
    ("second order", msh(LITTLE4, tets=((*TETS[0], *TETS[0], 3, 3),), kind=11), "tetrahedra, with 10", ": byte"),
    ("third order", msh(TEXT2, tets=((*TETS[0], *TETS[0] * 4),), kind=29), "tetrahedra, with 20", ":16"),
    ("too few corners", swapped(T2, b"3 10 11 25", b"3 10 11"), "too few or too many", ":16"),
    ("too few corners of 4.1", swapped(T4, b"2 3 10 11 25", b"2 3 10 11"), "tag and nodes", ":26"),
    ("too many labels", swapped(T2, b"2 4 2 7 1", b"2 4 9 7 1"), "too few or too many", ":16"),
    ("short element", swapped(T2, b"1 2 2 7 1 3 11 10", b"1 2"), "needs tag, kind", ":15"),
    ("corner with a point", swapped(T2, b"3 10 11 25", b"3 10 11 25.0"), "numbers of an element", ":16"),
    ("triangles only", msh(LITTLE4, tets=()), "no tetrahedra(.|\n)*1 triangles", "msh"),
    ("nothing", msh(TEXT4, tets=(), triangle=None), "no tetrahedra(.|\n)*no elements", "msh"),
    ("more after the end", T4 + b"more", "expected a section", ":"),
]  # fmt: skip


@pytest.mark.parametrize("data, message, where", [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_files_are_refused_with_their_place(data: bytes, message: str, where: str):
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(ModelError, match=message) as error:
        parse_msh(data, "mesh.msh")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.value.where is not None and "mesh.msh" in error.value.where and where in error.value.where
    assert len(str(error.value)) < 1000
    # A count must not be believed: all of these files are small.
    assert peak < 2**21 and time.process_time() - begin < 1


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="there is no such file"):
        read_msh(tmp_path / "none.msh")
    with pytest.raises(ModelError, match="not a regular file"):
        read_msh(tmp_path)
