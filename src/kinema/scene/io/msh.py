"""Tetrahedra from Gmsh MSH files, versions 2.2 and 4.1, text and binary: strict, with memory bounded by the file size.

Formats: Gmsh reference manual, sections "MSH file format" and "MSH file format version 2".
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Tets
from kinema.scene.io.files import read_bytes, short, warn_of
from kinema.scene.io.tets import usable_tets
from kinema.scene.io.xml import LARGEST_NUMBER, close_to

LARGEST_FILE = 64 * 2**20  # bytes: 1.4 million tetrahedra; the parsed content stays below 1 GB
LONGEST_LINE = 2**16  # bytes
LARGEST_TAG = 2**62
MOST_DIGITS = 18  # of an integer in a text file, so that it fits into 64 bits
VERSIONS = (b"2.2", b"4.1")
TETRAHEDRON = 4
HIGHER_ORDER = {11: 10, 29: 20, 30: 35, 31: 56}  # nodes of tetrahedra with curved edges
# Name and number of nodes of all other element types.
OTHERS = {
    15: ("points", 1),
    **{kind: ("lines", nodes) for kind, nodes in ((1, 2), (8, 3), (26, 4), (27, 5), (28, 6))},
    **{kind: ("triangles", nodes) for kind, nodes in ((2, 3), (9, 6), (20, 9), (21, 10), (22, 12), (23, 15))},
    **{kind: ("triangles", nodes) for kind, nodes in ((24, 15), (25, 21))},
    **{kind: ("quadrangles", nodes) for kind, nodes in ((3, 4), (10, 9), (16, 8), (36, 16), (37, 25), (38, 36))},
    **{kind: ("hexahedra", nodes) for kind, nodes in ((5, 8), (12, 27), (17, 20), (92, 64), (93, 125))},
    **{kind: ("prisms", nodes) for kind, nodes in ((6, 6), (13, 18), (18, 15))},
    **{kind: ("pyramids", nodes) for kind, nodes in ((7, 5), (14, 14), (19, 13))},
}
# Sections without effect on the tetrahedra.
SKIPPED = (
    *("PhysicalNames", "Entities", "PartitionedEntities", "Periodic", "GhostElements", "Parametrizations"),
    *("NodeData", "ElementData", "ElementNodeData", "InterpolationScheme", "Comments"),
)


def read_msh(path: str | os.PathLike[str], *, repair: bool = False) -> Tets:
    """Read the tetrahedra of a Gmsh MSH file, version 2.2 or 4.1, text or binary, in the file's units.

    Leaves out other element types (mostly surface triangles), listed in a warning, and unused nodes. Ignores groups,
    entities and data.

    Args:
        path: The file.
        repair: Whether to flip inverted elements and drop degenerate and duplicate ones, with a warning that counts
            them. Otherwise such elements raise.

    Returns:
        Tetrahedra and vertices in file order.

    Raises:
        ModelError: The file is malformed, truncated or of another version, or has no tetrahedra, higher-order
            tetrahedra, or elements that are not usable; names the line or byte, and the element.
    """
    shown = os.fspath(path)
    tets, notes = parse_msh(read_bytes(path, LARGEST_FILE), shown, repair=repair)
    warn_of(notes, shown)
    return tets


def parse_msh(data: bytes, name: str, *, repair: bool = False) -> tuple[Tets, list[str]]:
    """Tetrahedra of an MSH file, and notes on elements left out or repaired.

    Args:
        data: Content of the file.
        name: Name of the file in messages.
        repair: As in `read_msh`.
    """
    mesh = _Contents(_Source(data, name))
    mesh.read()
    points, corners = mesh.resolved()
    tets, repairs = usable_tets(points, corners, mesh.element_place, repair=repair)
    notes = []
    if mesh.others:
        notes.append("left out " + ", ".join(f"{count} {what}" for what, count in mesh.others.items()))
    if str(repairs):
        notes.append(f"tetrahedra repaired: {repairs}")
    return tets, notes


class _Source:
    """The bytes of a file, a read position, and the number format."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.at = self.line = 0
        self.binary = False
        self.order = "<"

    @property
    def finished(self) -> bool:
        """Whether only white space follows."""
        return len(self.data) - self.at < LONGEST_LINE and not self.data[self.at :].strip()

    def place(self, at: int | None = None) -> str:
        """Location for messages: the current line or byte, or another one."""
        if self.binary:
            return f"{self.name}: byte {self.at if at is None else at}"
        return f"{self.name}:{max(self.line if at is None else at, 1)}"

    def error(self, what: str, *, at: int | None = None, **parts: object) -> ModelError:
        return ModelError(what, where=self.place(at), **parts)  # type: ignore[arg-type]

    def words(self, what: str) -> list[bytes]:
        """Words of the next line that is not blank; messages say that `what` was expected there."""
        while self.at < len(self.data):
            end = self.data.find(b"\n", self.at, self.at + LONGEST_LINE)
            if end < 0 and len(self.data) - self.at > LONGEST_LINE:
                raise self.error("a line is too long", expected=f"at most {LONGEST_LINE} bytes")
            stop = len(self.data) if end < 0 else end
            text = self.data[self.at : stop]
            self.at = stop + 1
            self.line += 1
            found = text.split()
            if found:
                return found
        self.at = len(self.data)
        raise self.error("the file is cut off", expected=what, fix="take a whole copy of the file, or export it again")

    def integers(self, what: str, count: int) -> list[int]:
        """Integers of the next line."""
        return self.parsed(self.words(what), what, count)

    def parsed(self, words: list[bytes], what: str, count: int | None = None) -> list[int]:
        """Integers, from words."""
        if count is not None and len(words) != count:
            raise self.error(f"expected {what}", got=_text(words), expected=f"{count} numbers")
        # bytes.isdigit accepts ASCII digits only, while int() also accepts underscores and spaces.
        if not b"".join(words).isdigit() or max(map(len, words)) > MOST_DIGITS:
            for word in words:
                digits = word[1:] if word[:1] in (b"-", b"+") else word
                if not digits.isdigit() or len(digits) > MOST_DIGITS:
                    raise self.error(f"expected {what}", got=_text([word]), expected="a whole number")
        return [int(word) for word in words]

    def numbers(self, words: list[bytes], what: str) -> list[float]:
        try:
            if b"_" in b"".join(words):  # Python would read 1_0 as 10
                raise ValueError
            return [float(word) for word in words]
        except ValueError:
            raise self.error(f"{what} is not numeric", got=_text(words)) from None

    def take(self, kind: np.dtype, count: int, what: str) -> np.ndarray:
        """Binary numbers; checks their count against the rest of the file before it allocates."""
        self.check_rest(kind.itemsize * count, f"{count} of {what}")
        found = np.frombuffer(self.data, kind, count, self.at)
        self.at += kind.itemsize * count
        return found

    def kind(self, *fields: tuple[str, str, int]) -> np.dtype:
        """A binary record: name, type and count of each field, in the file's byte order."""
        return np.dtype([(name, self.order + letter, (count,)) for name, letter, count in fields])

    def whole(self, letters: str, what: str) -> tuple[int, ...]:
        """A few binary numbers, by their `struct` format."""
        kind = self.order + letters
        size = struct.calcsize(kind)
        self.check_rest(size, what)
        self.at += size
        return struct.unpack_from(kind, self.data, self.at - size)

    def check_rest(self, size: int, what: str) -> None:
        """Refuse more bytes than the file has left."""
        left = len(self.data) - self.at
        if size > left:
            fix = "take a whole copy of the file, or export it again"
            expected = f"{size} bytes for {what}"
            what = "the file is cut off, or a count is wrong"
            raise self.error(what, got=f"{left} bytes", expected=expected, fix=fix)


class _Rows:
    """A growing table of numbers, without an object per row: files may have many small blocks.

    Attributes:
        tags: Tag of each row.
        values: Numbers of all rows.
        at: Line or byte of each row.
    """

    def __init__(self, letter: str) -> None:
        self.tags, self.values, self.at = array("q"), array(letter), array("q")

    def add(self, tags: object, values: object, at: object) -> None:
        """Add rows, from array-likes."""
        for column, given in ((self.tags, tags), (self.values, values), (self.at, at)):
            column.frombytes(np.asarray(given, column.typecode).tobytes())

    def arrays(self, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tags, values in rows of `width`, and locations."""
        tags, values, at = (np.frombuffer(c, c.typecode) for c in (self.tags, self.values, self.at))
        return tags, values.reshape(-1, width), at


class _Contents:
    """The content of a file, while it is read."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.version = 0
        self.nodes = _Rows("d")
        self.elements = _Rows("q")  # tetrahedra only
        self.index = array("q")  # of tetrahedra among all elements of the file, from 0
        self.others: dict[str, int] = {}

    # The file.

    def read(self) -> None:
        """All sections of the file."""
        s = self.source
        self.header()
        seen: set[str] = set()
        while not s.finished:
            name = self.section_name()
            if name in seen and name in ("Nodes", "Elements", "MeshFormat"):
                raise s.error(f"there is a second section ${name}", fix="keep one of them")
            seen.add(name)
            if name == "Nodes":
                self.read_nodes()
            elif name == "Elements":
                if "Nodes" not in seen:
                    raise s.error("$Elements comes before $Nodes", expected="$Nodes first")
                self.read_elements()
            elif name in SKIPPED:
                self.skip(name)
                continue
            else:
                fix = close_to(name, ("Nodes", "Elements", *SKIPPED))
                raise s.error("unknown section", got=short("$" + name), fix=fix)
            self.expect_end(name)
        for name in ("Nodes", "Elements"):
            if name not in seen:
                raise s.error(f"the file has no section ${name}", fix="export the mesh again, or take a whole copy")

    def header(self) -> None:
        s = self.source
        first = s.data[:LONGEST_LINE].split(maxsplit=1)[:1]
        if first != [b"$MeshFormat"]:
            raise s.error("not an MSH file of Gmsh", got=_text(first), expected="$MeshFormat on the first line")
        s.words("$MeshFormat")
        words = s.words("version, file type and data size")
        if len(words) != 3:
            raise s.error("the format needs three numbers", got=_text(words), expected="such as 4.1 0 8")
        if words[0] not in VERSIONS:
            fix = "export it with Mesh.MshFileVersion = 4.1"
            raise s.error("unsupported MSH version", got=_text(words[:1]), expected="2.2 or 4.1", fix=fix)
        if words[1] not in (b"0", b"1"):
            raise s.error("the file type is unknown", got=_text(words[1:2]), expected="0 for text, 1 for binary")
        if words[2] != b"8":
            raise s.error("numbers have an unknown size", got=_text(words[2:]), expected="8 bytes")
        self.version = int(words[0][:1])
        if words[1] == b"1":
            s.binary = True
            mark = bytes(s.take(np.dtype("u1"), 4, "the mark of the byte order"))
            orders = {b"\1\0\0\0": "<", b"\0\0\0\1": ">"}
            if mark not in orders:
                got, expected = mark.hex(" "), "the number 1 in 4 bytes"
                raise s.error("the byte order is unknown", at=s.at - 4, got=got, expected=expected)
            s.order = orders[mark]
        self.expect_end("MeshFormat")

    def section_name(self) -> str:
        s = self.source
        words = s.words("a section")
        if len(words) != 1 or not words[0].startswith(b"$") or words[0].startswith(b"$End"):
            raise s.error("expected a section", got=_text(words), expected="such as $Nodes")
        return words[0][1:].decode("ascii", "replace")

    def expect_end(self, name: str) -> None:
        s = self.source
        words = s.words(f"$End{name}")
        if words != [b"$End" + name.encode()]:
            what = f"the section ${name} does not end here: a count is wrong, or there is an extra line"
            raise s.error(what, got=_text(words), expected=f"$End{name}")

    def skip(self, name: str) -> None:
        s = self.source
        end = s.data.find(b"$End" + name.encode(), s.at)
        if end < 0:
            raise s.error(f"the section ${name} has no end: the file is cut off", expected=f"$End{name}")
        s.line += s.data.count(b"\n", s.at, end)
        s.at = end
        self.expect_end(name)

    # Nodes.

    def read_nodes(self) -> None:
        s = self.source
        if self.version == 2:
            (count,) = self.counts("the number of nodes", 1)
            self.nodes_of_2(count)
            return
        blocks, count, _, _ = self.counts("numbers of blocks and nodes, smallest and largest tag", 4)
        found = 0
        for _ in range(blocks):
            what = "dimension, entity, parametric or not, and number of nodes of a block"
            dimension, _, parametric, size = s.whole("3iQ", what) if s.binary else s.integers(what, 4)
            if not 0 <= dimension <= 3 or parametric not in (0, 1):
                got = f"dimension {dimension}, parametric {parametric}"
                raise s.error("a block of nodes is malformed", got=got, expected="0 to 3, and 0 or 1")
            self.check_block(size, count - found, "nodes")
            if size:
                self.block_of_nodes(size, dimension if parametric else 0)
            found += size
        if found != count:
            raise s.error("the number of nodes is wrong", got=f"{found} in {blocks} blocks", expected=str(count))

    def nodes_of_2(self, count: int) -> None:
        s = self.source
        if s.binary:
            begin, kind = s.at, s.kind(("tag", "i4", 1), ("point", "f8", 3))
            records = s.take(kind, count, "nodes")
            self.nodes.add(records["tag"], records["point"], begin + kind.itemsize * np.arange(count))
            return
        tags, points, at = array("q"), array("d"), array("q")
        for i in range(count):
            words = self.line(i, count, "node", "Nodes")
            if len(words) != 4:
                raise s.error("a node needs its tag and 3 coordinates", got=_text(words))
            tags.extend(s.parsed(words[:1], "the tag of a node"))
            points.extend(s.numbers(words[1:], "a node"))
            at.append(s.line)
        self.nodes.add(tags, points, at)

    def block_of_nodes(self, size: int, further: int) -> None:
        """Nodes of version 4.1: all tags, then all coordinates, with `further` parametric ones each."""
        s = self.source
        if s.binary:
            names = s.take(np.dtype(s.order + "u8"), size, "tags of nodes")
            begin, width = s.at, 3 + further
            self.check_tags(names, begin - 8 * size, 8)
            records = s.take(s.kind(("point", "f8", width)), size, "nodes")["point"]
            self.nodes.add(names, records[:, :3], begin + 8 * width * np.arange(size))
            return
        tags, points, at = array("q"), array("d"), array("q")
        for i in range(size):
            tags.extend(s.parsed(self.line(i, size, "tag", "Nodes"), "the tag of a node", 1))
        for i in range(size):
            words = self.line(i, size, "node", "Nodes")
            if len(words) != 3 + further:
                raise s.error(f"a node needs {3 + further} numbers here", got=_text(words))
            points.extend(s.numbers(words, "a node")[:3])
            at.append(s.line)
        self.nodes.add(tags, points, at)

    # Elements.

    def read_elements(self) -> None:
        s = self.source
        if self.version == 2:
            (count,) = self.counts("the number of elements", 1)
            if s.binary:
                self.binary_elements_of_2(count)
            else:
                self.text_elements_of_2(count)
            return
        blocks, count, _, _ = self.counts("numbers of blocks and elements, smallest and largest tag", 4)
        found = 0
        for _ in range(blocks):
            what = "dimension, entity, kind and number of elements of a block"
            _, _, kind, size = s.whole("3iQ", what) if s.binary else s.integers(what, 4)
            width = 1 + self.nodes_of(kind)
            self.check_block(size, count - found, "elements")
            if size:
                self.block_of_elements(kind, size, width, found)
            found += size
        if found != count:
            raise s.error("the number of elements is wrong", got=f"{found} in {blocks} blocks", expected=str(count))

    def block_of_elements(self, kind: int, size: int, width: int, found: int) -> None:
        """Elements of version 4.1: tag and nodes of each."""
        s = self.source
        if s.binary:
            begin = s.at
            records = s.take(s.kind(("row", "u8", width)), size, "elements")["row"]
            self.check_tags(records, begin, 8 * width)
            lines: object = begin + 8 * width * np.arange(size)
        else:
            numbers, at = array("q"), array("q")
            for i in range(size):
                words = self.line(i, size, "element", "Elements")
                numbers.extend(s.parsed(words, "tag and nodes of an element", width))
                at.append(s.line)
            records, lines = np.asarray(numbers, np.int64).reshape(size, width), at
        self.keep(kind, records[:, 0], records[:, 1:], lines, found)

    def binary_elements_of_2(self, count: int) -> None:
        s, found = self.source, 0
        while found < count:
            kind, size, labels = s.whole("3i", "kind, number of elements and number of labels of a block")
            nodes = self.nodes_of(kind)
            if size == 0:
                raise s.error("a block has no elements", at=s.at - 8, expected="at least 1")
            self.check_block(size, count - found, "elements")
            if not 0 <= labels <= LONGEST_LINE:
                raise s.error("a number of labels is wrong", at=s.at - 4, got=labels, expected="0 or more")
            begin, width = s.at, 1 + labels + nodes
            records = s.take(s.kind(("row", "i4", width)), size, "elements")["row"]
            at = begin + 4 * width * np.arange(size)
            self.keep(kind, records[:, 0], records[:, 1 + labels :], at, found)
            found += size

    def text_elements_of_2(self, count: int) -> None:
        s = self.source
        numbers, at, index = array("q"), array("q"), array("q")
        for i in range(count):
            words = self.line(i, count, "element", "Elements")
            if len(words) < 3:
                raise s.error("an element needs tag, kind, number of labels, labels and nodes", got=_text(words))
            tag, kind, labels, *rest = s.parsed(words, "whole numbers of an element")
            nodes = self.nodes_of(kind)
            if labels < 0 or len(rest) != labels + nodes:
                got, expected = f"{len(rest)} numbers", f"{labels} labels and {nodes} nodes"
                raise s.error("an element has too few or too many nodes or labels", got=got, expected=expected)
            if kind == TETRAHEDRON:
                numbers.extend((tag, *rest[labels:]))
                at.append(s.line)
                index.append(i)
            else:
                self.leave_out(kind, 1)
        records = np.asarray(numbers, np.int64).reshape(-1, 5)
        self.elements.add(records[:, 0], records[:, 1:], at)
        self.index.extend(index)

    def nodes_of(self, kind: int) -> int:
        """Number of nodes of an element of a kind."""
        if kind == TETRAHEDRON:
            return 4
        if kind in HIGHER_ORDER:
            what = f"higher-order tetrahedra, with {HIGHER_ORDER[kind]} nodes, are not supported"
            fix = "export it with Mesh.ElementOrder = 1"
            raise self.source.error(what, got=f"elements of kind {kind}", expected="4 nodes, kind 4", fix=fix)
        if kind not in OTHERS:
            raise self.source.error("unknown element type", got=kind, expected="4 for tetrahedra")
        return OTHERS[kind][1]

    def keep(self, kind: int, tags: np.ndarray, corners: np.ndarray, at: object, found: int) -> None:
        if kind == TETRAHEDRON:
            self.elements.add(tags, corners, at)
            self.index.extend(range(found, found + len(tags)))
        else:
            self.leave_out(kind, len(tags))

    def leave_out(self, kind: int, count: int) -> None:
        name = OTHERS[kind][0]
        self.others[name] = self.others.get(name, 0) + count

    # Checks.

    def counts(self, what: str, count: int) -> Sequence[int]:
        """Counts at the beginning of a section: a line of text, or 8-byte integers in binary files of version 4.1."""
        s = self.source
        values: Sequence[int]
        values = s.whole(f"{count}Q", what) if s.binary and self.version == 4 else s.integers(what, count)
        if min(values[:2]) < 0 or max(values[:2]) > LARGEST_TAG:
            raise s.error("a count is negative or far too large", got=values)
        return values

    def check_block(self, size: int, left: int, what: str) -> None:
        if not 0 <= size <= left:
            expected = f"0 to {left}, by the count of the section"
            raise self.source.error(f"a block has a wrong number of {what}", got=size, expected=expected)

    def check_tags(self, tags: np.ndarray, begin: int, stride: int) -> None:
        """Refuse 64-bit tags that do not fit into a signed integer."""
        large = np.asarray((tags > LARGEST_TAG).any(axis=tuple(range(1, tags.ndim))))
        if large.any():
            first = int(np.argmax(large))
            raise self.source.error("a tag is far too large", at=begin + stride * first, got=tags[first])

    def line(self, i: int, count: int, what: str, section: str) -> list[bytes]:
        """The next line of a section with `count` entries, of which i have been read."""
        s = self.source
        words = s.words(f"{what} {i + 1} of {count}")
        if words[0].startswith(b"$"):
            raise s.error(
                f"the section ${section} ends too early", got=_text(words), expected=f"{what} {i + 1} of {count}"
            )
        return words

    # The whole.

    def resolved(self) -> tuple[np.ndarray, np.ndarray]:
        """Points, shape (n, 3), and tetrahedra as indices of points, shape (m, 4)."""
        s = self.source
        if len(self.elements.tags) == 0:
            got = ", ".join(f"{count} {what}" for what, count in self.others.items()) or "no elements"
            fix = "mesh the volume (gmsh -3), and save all elements or a group of volumes"
            raise ModelError("the file has no tetrahedra", where=s.name, got=got, fix=fix)
        tags, points, at = self.nodes.arrays(3)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(points) <= LARGEST_NUMBER).all(axis=1)  # true for NaN
        if bad.any():
            first = int(np.argmax(bad))
            what = f"node {tags[first]} is not finite or too large"
            raise s.error(what, at=int(at[first]), got=points[first].tolist(), expected=f"up to {LARGEST_NUMBER:g}")
        order = np.argsort(tags, kind="stable")
        self.check_unique("node", tags, order, at)
        element_tags, named, element_at = self.elements.arrays(4)
        self.check_unique("element", element_tags, np.argsort(element_tags, kind="stable"), element_at)
        found = np.minimum(np.searchsorted(tags[order], named), len(tags) - 1)
        missing = tags[order][found] != named if len(tags) else np.ones(named.shape, bool)
        if missing.any():
            first = int(np.argmax(missing.any(axis=1)))
            tag = named[first][int(np.argmax(missing[first]))]
            raise ModelError(f"node {tag} does not exist", where=self.element_place(first), got=f"{len(tags)} nodes")
        return points, order[found]

    def check_unique(self, what: str, tags: np.ndarray, order: np.ndarray, at: np.ndarray) -> None:
        """Refuse duplicate tags, and tags below 1."""
        if len(tags) and tags[order[0]] < 1:
            expected = "1 or more"
            raise self.source.error(
                f"the tag of a {what} is not positive", at=int(at[order[0]]), got=int(tags[order[0]]), expected=expected
            )
        same = np.flatnonzero(np.diff(tags[order]) == 0)
        if len(same):
            again = int(order[same[0] + 1])
            raise self.source.error(
                f"{what} {tags[again]} is defined twice", at=int(at[again]), fix="give each its own tag"
            )

    def element_place(self, i: int) -> str:
        """Location of the i-th tetrahedron."""
        tag, at = self.elements.tags[i], self.elements.at[i]
        return f"{self.source.place(at)}: element {tag}, number {self.index[i]} of the file from 0"


def _text(words: list[bytes]) -> str:
    return short(b" ".join(words[:8])[:200].decode("utf-8", "replace"))
