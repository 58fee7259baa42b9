"""Triangle meshes from OBJ, STL, COLLADA and glTF files: strict, and bounded by the size of the file."""

from __future__ import annotations

import io
import os
import re
from array import array
from collections.abc import Sequence

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Mesh, Vector
from kinema.scene.io import scene_meshes
from kinema.scene.io.files import read_bytes, short
from kinema.scene.io.xml import LARGEST_NUMBER

LARGEST_FILE = 64 * 2**20  # bytes; the parsed content stays below 1 GB
LONGEST_LINE = 2**20  # bytes of a line, or corners of a face
MOST_VERTICES = 2**31 - 1  # indices are int32
FORMATS = (".obj", ".stl", *scene_meshes.FORMATS)
STL_HEADER = 84  # bytes: a comment of 80 and the number of triangles
_FACET = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])  # 50 bytes

_CORNER = re.compile(rb"([+-]?\d{1,20})(?:/[+-]?\d*){0,2}")
# OBJ keywords without effect on the triangles.
OBJ_IGNORED = frozenset(
    b"vt vn vp g o s l p usemtl mtllib mg bevel c_interp d_interp lod shadow_obj trace_obj maplib usemap".split()
)


def read_mesh(path: str | os.PathLike[str], *, name: str | None = None, ignored: set[str] | None = None) -> Mesh:
    """Triangles of a mesh file: of OBJ and STL in the file's units, of COLLADA and glTF in metres.

    Drops faces without three different corners and unused vertices; merges equal corners of an STL file.

    Args:
        path: The file; its suffix selects the format.
        name: Name of the file in messages; its path if None.
        ignored: Collects the ignored keywords.

    Raises:
        ModelError: The suffix is unknown, the file is malformed or truncated, an index is out of range, a vertex is not
            finite, or the mesh has no triangles.
    """
    shown = name or os.fspath(path)
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in FORMATS:
        raise ModelError(
            "unsupported mesh format",
            where=shown,
            got=short(ending),
            expected=" or ".join(FORMATS),
            fix="convert the mesh to OBJ or STL",
        )
    data = read_bytes(path, LARGEST_FILE, shown)
    if ending in scene_meshes.FORMATS:
        return _mesh(*scene_meshes.parse_scene(data, ending, shown), shown)
    return parse_obj(data, shown, ignored) if ending == ".obj" else parse_stl(data, shown)


def read_obj(path: str | os.PathLike[str]) -> Mesh:
    """Read the triangles of an OBJ file, for cloth or terrain, in the file's units; polygons become triangle fans.

    Ignores texture coordinates, normals, materials and groups. Drops faces without three different corners and unused
    vertices; the others keep their order.

    Args:
        path: The file, with any suffix.

    Raises:
        ModelError: The file is malformed or truncated, an index is out of range, a vertex is not finite, or the mesh
            has no triangles; names the line.
    """
    name = os.fspath(path)
    return parse_obj(read_bytes(path, LARGEST_FILE, name), name)


def scaled(mesh: Mesh, scale: Vector) -> Mesh:
    """A mesh scaled along x, y, z; mirrored faces are reversed, so that they stay counter-clockwise from outside."""
    faces = mesh.faces if np.prod(np.sign(scale)) > 0 else np.ascontiguousarray(mesh.faces[:, ::-1])
    return Mesh(mesh.vertices * np.asarray(scale), faces)


def parse_obj(data: bytes, name: str, ignored: set[str] | None = None) -> Mesh:
    """Triangles of an OBJ file; polygons become fans around their first corner.

    Args:
        data: Content of the file.
        name: Name of the file in messages.
        ignored: Collects the ignored keywords.
    """
    vertices, faces, lines = array("d"), array("i"), array("i")  # lines: one per triangle
    others: set[bytes] = set()
    begun: list[bytes] = []  # words of continued lines, which end with a backslash
    number = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        if len(line) > LONGEST_LINE or len(begun) > LONGEST_LINE:
            raise _error("a line is too long", name, number, expected=f"at most {LONGEST_LINE} bytes")
        words = line.partition(b"#")[0].split()
        if words and words[-1].endswith(b"\\"):
            begun += [*words[:-1], words[-1][:-1]] if words[-1] != b"\\" else words[:-1]
            continue
        words, begun = begun + words, []
        if not words:
            continue
        keyword = words[0]
        if keyword == b"v":
            vertices.extend(_vertex(words[1:], name, number))
        elif keyword == b"f":
            corners = [_corner(word, len(vertices) // 3, name, number) for word in words[1:]]
            # Skip points and edges, but the last line may be a truncated face.
            if len(corners) < 3 and not line.endswith(b"\n"):
                raise _error("a face has fewer than 3 corners: the file is cut off", name, number, got=len(corners))
            for second, third in zip(corners[1:], corners[2:], strict=False):
                faces.extend((corners[0], second, third))
                lines.append(number)
        elif keyword in OBJ_IGNORED:
            others.add(keyword)
        else:
            what = "not an OBJ keyword for polygons"
            raise _error(what, name, number, got=_text(keyword), fix="export the mesh again, as polygons")
    if begun:
        raise _error("the last line ends with a backslash: the file is cut off", name, number)
    if ignored is not None:
        ignored |= {word.decode() for word in others}
    points = np.asarray(vertices).reshape(-1, 3)
    triangles = np.asarray(faces).reshape(-1, 3)
    beyond = (triangles >= len(points)).any(axis=1)
    if beyond.any():
        first = int(np.argmax(beyond))
        what = f"vertex {int(triangles[first].max()) + 1} does not exist"
        raise _error(what, name, lines[first], expected=f"1 to {len(points)}, or -{len(points)} to -1")
    return _mesh(points, triangles, name)


def parse_stl(data: bytes, name: str) -> Mesh:
    """Triangles of an STL file, binary or ASCII.

    Args:
        data: Content of the file.
        name: Name of the file in messages.
    """
    count = int.from_bytes(data[STL_HEADER - 4 : STL_HEADER], "little") if len(data) >= STL_HEADER else 0
    size = STL_HEADER + _FACET.itemsize * count
    # Many binary files also begin with "solid", so check the size first.
    if len(data) >= STL_HEADER and size == len(data):
        read = np.frombuffer(data, _FACET, count, STL_HEADER)["corners"]
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(read) <= LARGEST_NUMBER).all(axis=(1, 2))  # true for NaN
        if bad.any():
            first = int(np.argmax(bad))
            what = f"triangle {first} has a corner that is not finite or too large"
            raise ModelError(what, where=f"{name}: byte {STL_HEADER + 50 * first}", got=read[first].tolist())
        corners = read.astype(np.float64)
    elif data[:512].lstrip()[:5].lower() == b"solid" and b"\0" not in data[:512]:
        corners = np.asarray(_ascii_corners(data, name)).reshape(-1, 3, 3)
    else:
        state = "cut off" if len(data) < max(size, STL_HEADER) else "longer than its header says"
        raise ModelError(
            f"the STL file is {state}",
            where=f"{name}: byte {min(len(data), 80)}",
            got=f"{len(data)} bytes",
            expected=f"{size} bytes for {count} triangles, or an ASCII file that begins with `solid`",
            fix="export the mesh again, or take a whole copy of the file",
        )
    # Adding zero turns -0 into 0.
    points, index = np.unique(corners.reshape(-1, 3) + 0.0, axis=0, return_inverse=True)
    return _mesh(points, index.reshape(-1, 3), name)


def _ascii_corners(data: bytes, name: str) -> array[float]:
    """Coordinates of an ASCII STL file, nine per triangle."""
    found = array("d")
    # The grammar: keywords that may follow each keyword.
    follows = {
        b"solid": (b"facet", b"endsolid"),
        b"facet": (b"outer",),
        b"outer": (b"vertex",),
        b"vertex": (b"vertex", b"endloop"),
        b"endloop": (b"endfacet",),
        b"endfacet": (b"facet", b"endsolid"),
        b"endsolid": (b"solid",),
    }
    allowed: tuple[bytes, ...] = (b"solid",)
    number = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        words = line[:LONGEST_LINE].split()
        if not words:
            continue
        keyword = words[0].lower()
        if keyword not in allowed:
            expected = " or ".join(word.decode() for word in allowed)
            raise _error("unexpected keyword", name, number, got=_text(words[0]), expected=expected)
        allowed = follows[keyword]
        if keyword == b"vertex":
            if len(words) != 4:
                raise _error("a vertex needs 3 numbers", name, number, got=_text(line.strip()))
            found.extend(_vertex(words[1:], name, number))
            allowed = (b"vertex",) if len(found) % 9 else (b"endloop",)
    if allowed != follows[b"endsolid"]:
        raise _error("the STL file is cut off", name, number, expected=" or ".join(word.decode() for word in allowed))
    return found


def _vertex(words: Sequence[bytes], name: str, line: int) -> tuple[float, float, float]:
    """Position of a vertex; ignores a weight or a colour behind it."""
    text = b" ".join(words)
    if len(words) not in (3, 4, 6, 7):
        raise _error("a vertex needs 3 numbers", name, line, got=_text(text))
    try:
        if b"_" in text:  # Python would read 1_0 as 10
            raise ValueError
        x, y, z = float(words[0]), float(words[1]), float(words[2])
    except ValueError:
        raise _error("a vertex is not numeric", name, line, got=_text(text)) from None
    # NaN fails this comparison.
    if not (abs(x) <= LARGEST_NUMBER and abs(y) <= LARGEST_NUMBER and abs(z) <= LARGEST_NUMBER):
        expected = f"numbers up to {LARGEST_NUMBER:g}"
        raise _error("a vertex is not finite or too large", name, line, got=_text(text), expected=expected)
    return x, y, z


def _corner(word: bytes, count: int, name: str, line: int) -> int:
    """Zero-based index of a corner; negative indices count back from the `count` vertices read so far."""
    match = _CORNER.fullmatch(word)
    index = int(match[1]) if match else 0
    if index == 0:
        expected = "v, v/vt, v//vn or v/vt/vn with integers, v not 0"
        raise _error("a corner of a face is malformed", name, line, got=_text(word), expected=expected)
    if -index > count or index > MOST_VERTICES:
        raise _error(f"vertex {index} does not exist", name, line, expected=f"-{count} to -1, or a number from 1")
    return index - 1 if index > 0 else count + index


def _mesh(points: np.ndarray, triangles: np.ndarray, name: str) -> Mesh:
    """A mesh of the triangles with three different corners, and of the vertices they use."""
    a, b, c = triangles.T
    kept = triangles[(a != b) & (b != c) & (c != a)]
    if len(kept) == 0:
        got = f"{len(points)} vertices, {len(triangles)} faces"
        raise ModelError("the mesh has no triangles", where=name, got=got, fix="export the mesh again, with faces")
    used = np.zeros(len(points), bool)
    used[kept] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    return Mesh(points[used], np.asarray(renumbered[kept], dtype=np.int32))


def _text(word: bytes) -> str:
    return short(word.decode("utf-8", "replace"))


def _error(
    what: str, name: str, line: int, *, got: object = None, expected: str | None = None, fix: str | None = None
) -> ModelError:
    return ModelError(what, where=f"{name}:{line}", got=got, expected=expected, fix=fix)
