"""A small writer of MSH files, for tests: versions 2.2 and 4.1, text and binary, in both byte orders."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Two tetrahedra on a common face, with node tags that have gaps, and one node without use (tag 40).
POINTS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0), (9.0, 9.0, 9.0))
NODE_TAGS = (3, 10, 11, 25, 31, 40)
TETS = ((3, 10, 11, 25), (10, 31, 11, 25))
TRIANGLE = (3, 11, 10)


@dataclass(frozen=True)
class Flavour:
    """A kind of MSH file: its version, and the byte order of binary ones ("<" or ">"), "" for text."""

    version: str
    order: str = ""


FLAVOURS = [Flavour(version, order) for version in ("2.2", "4.1") for order in ("", "<", ">")]


def msh(
    flavour: Flavour,
    points: Sequence[Sequence[float]] = POINTS,
    node_tags: Sequence[int] = NODE_TAGS,
    tets: Sequence[Sequence[int]] = TETS,
    *,
    element_tags: Sequence[int] | None = None,
    triangle: Sequence[int] | None = TRIANGLE,
    kind: int = 4,
) -> bytes:
    """A file with one triangle (if given), then tetrahedra, with tags from 1; in 4.1 nodes are in two blocks."""
    groups = [(2, [list(triangle)])] if triangle else []
    groups.append((kind, [list(tet) for tet in tets]))
    count = sum(len(rows) for _, rows in groups)
    numbers = iter(element_tags or range(1, count + 1))
    named = [(kind, [(next(numbers), row) for row in rows]) for kind, rows in groups]
    header = f"$MeshFormat\n{flavour.version} {int(bool(flavour.order))} 8\n".encode()
    if flavour.order:
        header += struct.pack(flavour.order + "i", 1) + b"\n"
    header += b"$EndMeshFormat\n"
    write = (_of_2 if flavour.version == "2.2" else _of_4) if flavour.order else _text
    nodes, elements = write(flavour, points, node_tags, named, count)
    between = b"" if not flavour.order else b"\n"
    return header + b"$Nodes\n" + nodes + between + b"$EndNodes\n$Elements\n" + elements + between + b"$EndElements\n"


def _text(flavour, points, node_tags, named, count):  # type: ignore[no-untyped-def]
    rows = [" ".join(map(repr, map(float, point))) for point in points]
    if flavour.version == "2.2":
        nodes = [f"{len(rows)}"] + [f"{tag} {row}" for tag, row in zip(node_tags, rows, strict=True)]
        elements = [f"{count}"]
        for kind, group in named:
            elements += [f"{tag} {kind} 2 7 1 {' '.join(map(str, row))}" for tag, row in group]
    else:
        nodes = [f"2 {len(rows)} {min(node_tags)} {max(node_tags)}"]
        for part in (slice(0, 1), slice(1, None)):
            nodes += [f"3 1 0 {len(rows[part])}", *map(str, node_tags[part]), *rows[part]]
        elements = [f"{len(named)} {count} 1 {count}"]
        for kind, group in named:
            elements += [f"3 1 {kind} {len(group)}", *(f"{tag} {' '.join(map(str, row))}" for tag, row in group)]
    return ("\n".join(nodes) + "\n").encode(), ("\n".join(elements) + "\n").encode()


def _of_2(flavour, points, node_tags, named, count):  # type: ignore[no-untyped-def]
    o = flavour.order
    nodes = b"".join(struct.pack(o + "i3d", tag, *point) for tag, point in zip(node_tags, points, strict=True))
    elements = b""
    for kind, group in named:
        elements += struct.pack(o + "3i", kind, len(group), 2)
        elements += b"".join(struct.pack(f"{o}{3 + len(row)}i", tag, 7, 1, *row) for tag, row in group)
    return f"{len(points)}\n".encode() + nodes, f"{count}\n".encode() + elements


def _of_4(flavour, points, node_tags, named, count):  # type: ignore[no-untyped-def]
    o = flavour.order
    nodes = struct.pack(o + "4Q", 2, len(points), min(node_tags), max(node_tags))
    for part in (slice(0, 1), slice(1, None)):
        nodes += struct.pack(o + "3iQ", 3, 1, 0, len(points[part]))
        nodes += np.asarray(node_tags[part], o + "u8").tobytes() + np.asarray(points[part], o + "f8").tobytes()
    elements = struct.pack(o + "4Q", len(named), count, 1, count)
    for kind, group in named:
        elements += struct.pack(o + "3iQ", 3, 1, kind, len(group))
        elements += b"".join(struct.pack(f"{o}{1 + len(row)}Q", tag, *row) for tag, row in group)
    return nodes, elements
