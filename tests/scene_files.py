"""COLLADA and glTF files of a tetrahedron, for tests of readers."""

from __future__ import annotations

import json
import struct

import numpy as np

TET = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]], float)
FACES = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]

COLLADA = """<?xml version="1.0" encoding="utf-8"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><contributor/><created>2026-01-01T00:00:00</created><modified>2026-01-01T00:00:00</modified>
    <unit name="centimeter" meter="{unit}"/><up_axis>{up}</up_axis></asset>
  <library_geometries><geometry id="g" name="g"><mesh>
    <source id="p"><float_array id="a" count="12">{points}</float_array>
      <technique_common><accessor source="#a" count="4" stride="3"><param name="X" type="float"/>
        <param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
    <vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
    <triangles count="4"><input semantic="VERTEX" source="#v" offset="0"/><p>{faces}</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="s"><node id="n"><matrix>{matrix}</matrix>{inside}
    <instance_geometry url="#g"/></node></visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#s"/></scene>
</COLLADA>
"""
MOVED = "0 -1 0 5  1 0 0 6  0 0 1 7  0 0 0 1"
MIRRORED = "-1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1"


def collada(unit: float = 1.0, matrix: str = MOVED, up: str = "Z_UP", inside: str = "") -> str:
    points, faces = (" ".join(f"{x:g}" for x in np.ravel(rows)) for rows in (TET, FACES))
    return COLLADA.format(unit=unit, up=up, matrix=matrix, points=points, faces=faces, inside=inside)


def gltf(**changes: object) -> tuple[dict[str, object], bytes]:
    """Description and buffer of the tetrahedron, placed at (5, 6, 7)."""
    data = TET.astype("<f4").tobytes() + np.array(FACES, "<u2").tobytes()
    tree: dict[str, object] = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "translation": [5, 6, 7]}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 12, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 48},
            {"buffer": 0, "byteOffset": 48, "byteLength": 24},
        ],
        "buffers": [{"byteLength": len(data)}],
    }
    return tree | changes, data


def glb(**changes: object) -> bytes:
    tree, data = gltf(**changes)
    return packed(json.dumps(tree).encode(), data)


def packed(text: bytes, data: bytes) -> bytes:
    """A binary glTF file of a description and a buffer."""
    text += b" " * (-len(text) % 4)
    body = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(data), b"BIN\0") + data
    return struct.pack("<4sII", b"glTF", 2, 12 + len(body)) + body
