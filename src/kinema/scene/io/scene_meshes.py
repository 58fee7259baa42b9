"""Triangles of COLLADA and glTF files, read by trimesh; their size is checked before it expands them."""

from __future__ import annotations

import importlib
import io
import json
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from kinema.errors import ModelError
from kinema.scene.io.files import short
from kinema.scene.io.xml import LARGEST_NUMBER, parse_xml

FORMATS = (".dae", ".glb", ".gltf")
MOST_TRIANGLES = 20_000_000
MOST_INSTANCES = 32  # <instance_node> elements of a COLLADA file: nested ones multiply
MATERIALS = ("library_images", "library_effects", "library_materials", "bind_material")
NOT_FINITE = re.compile("nan|inf", re.IGNORECASE)
GLB_HEADER = 20  # bytes: magic, version, length; length and type of the first chunk, which is JSON


def parse_scene(data: bytes, ending: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """All triangles of a file, placed by its nodes, in metres; no axes are exchanged, whatever the file says is up.

    Args:
        data: Content of the file.
        ending: ".dae", ".glb" or ".gltf".
        name: Name of the file in messages.

    Returns:
        Vertices [m], and their indices by triangle.

    Raises:
        ModelError: trimesh is not installed, the file is malformed, expands to too many triangles, refers to other
            files, or has no triangles.
    """
    trimesh = _import_trimesh(ending, name)
    if ending == ".dae":
        data = _geometry_alone(data, name)
    else:
        _check_gltf(data, ending, name)
    try:
        scene = trimesh.load_scene(io.BytesIO(data), file_type=ending[1:], process=False, **_OPTIONS[ending])
        placed = [scene.graph[node] for node in scene.graph.nodes_geometry]
        solids = [(matrix, scene.geometry[geometry]) for matrix, geometry in placed]
        solids = [(matrix, one) for matrix, one in solids if hasattr(one, "faces")]  # not lines and points
        count = sum(len(one.faces) for _, one in solids)
        if count > MOST_TRIANGLES:
            raise ModelError("the mesh has too many triangles", where=name, expected=f"at most {MOST_TRIANGLES}")
        scale = _unit(solids)
        parts = [(_placed(one.vertices, matrix) * scale, _turned(one.faces, matrix)) for matrix, one in solids]
    except ModelError:
        raise
    except Exception as error:  # readers of trimesh raise errors of many kinds for bad files
        what = f"trimesh cannot read the mesh: {short(str(error) or type(error).__name__)}"
        raise ModelError(what, where=name, fix="export the mesh again, as OBJ or STL") from None
    if not count:
        raise ModelError("the mesh has no triangles", where=name, fix="export the mesh again")
    starts = np.cumsum([0, *(len(points) for points, _ in parts)])
    points = np.concatenate([points for points, _ in parts])
    if not (np.abs(points) <= LARGEST_NUMBER).all():  # false for NaN
        raise ModelError("a vertex is not finite or too large", where=name)
    for places, faces in parts:
        if len(faces) and not 0 <= faces.min() <= faces.max() < len(places):
            raise ModelError("a face has a vertex that does not exist", where=name, fix="export the mesh again")
    faces = np.concatenate([faces + start for (_, faces), start in zip(parts, starts[:-1], strict=True)])
    return points, faces


_OPTIONS: dict[str, dict[str, Any]] = {
    ".dae": {"ignore_broken": False},
    ".glb": {"skip_materials": True},
    ".gltf": {"skip_materials": True},
}


def _import_trimesh(ending: str, name: str) -> Any:
    try:
        import trimesh

        if ending == ".dae":
            importlib.import_module("collada")  # with which trimesh reads COLLADA
    except ImportError as error:
        what, fix = (
            f"{ending} meshes need trimesh and pycollada",
            "pip install 'kinema[meshes]', or convert to OBJ or STL",
        )
        raise ModelError(what, where=name, fix=fix) from error
    return trimesh


def _geometry_alone(data: bytes, name: str) -> bytes:
    """A COLLADA file without materials, which often refer to images that are missing.

    Raises:
        ModelError: The file has entities, too many elements, numbers that are not finite, or nodes that multiply.
    """
    waiting, instances = [parse_xml(data, name)], 0
    while waiting:
        element = waiting.pop()
        instances += element.tag == "instance_node"
        if instances > MOST_INSTANCES:
            raise element.error("too many instances of nodes", expected=f"at most {MOST_INSTANCES}")
        if element.tag == "float_array" and NOT_FINITE.search(element.text):
            raise element.error("a number is not finite")
        waiting += element.children
    try:
        # Safe after the check above: no document type, no entities, and UTF-8.
        root = ElementTree.fromstring(data, ElementTree.XMLParser(encoding="utf-8"))
    except ElementTree.ParseError as error:
        raise ModelError(f"not well-formed XML: {error}", where=name) from None
    for parent in list(root.iter()):
        for child in [one for one in parent if str(one.tag).rpartition("}")[2] in MATERIALS]:
            parent.remove(child)
    return ElementTree.tostring(root)


def _check_gltf(data: bytes, ending: str, name: str) -> None:
    """Refuse other files, arrays larger than the file may have, and nodes with several parents."""
    head = data
    if ending == ".glb":
        if data[:4] != b"glTF" or len(data) < GLB_HEADER:
            raise ModelError("not a binary glTF file", where=name, fix="export the mesh again")
        head = data[GLB_HEADER : GLB_HEADER + int.from_bytes(data[12:16], "little")]
    try:
        tree = json.loads(head)
        nodes = [child for node in tree.get("nodes", []) for child in node.get("children", [])]
        counts = [int(accessor["count"]) for accessor in tree.get("accessors", [])]
        files = [part.get("uri", "") for part in tree.get("buffers", [])]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelError("the glTF description is malformed", where=name, fix="export the mesh again") from None
    if len(set(map(str, nodes))) < len(nodes):
        raise ModelError("a glTF node has two parents", where=name, fix="export the mesh again")
    if any(not 0 <= count <= 3 * MOST_TRIANGLES for count in counts):
        raise ModelError("a glTF array is too large", where=name, expected=f"at most {3 * MOST_TRIANGLES} entries")
    if others := [uri for uri in files if uri and not str(uri).startswith("data:")]:
        what, fix = "the glTF file refers to other files", "save it as .glb, which contains everything"
        raise ModelError(what, where=name, got=short(others[0]), fix=fix)


def _unit(solids: list[tuple[np.ndarray, Any]]) -> float:
    """Metres per unit of a COLLADA file, from trimesh's "0.01 * meters"; glTF is in metres."""
    units = [str(one.metadata.get("units", "")) for _, one in solids[:1]]
    number, star, _ = units[0].partition(" * ") if units else ("", "", "")
    scale = float(number) if star else 1.0
    if not 0 < scale <= LARGEST_NUMBER:
        raise ValueError(f"a unit of {scale} m")
    return scale


def _placed(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.asarray(points, np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


def _turned(faces: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Faces that stay counter-clockwise from outside if a node mirrors them."""
    return np.asarray(faces if np.linalg.det(matrix[:3, :3]) > 0 else faces[:, ::-1], np.int64)
