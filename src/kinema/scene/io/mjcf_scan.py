"""Scan of MJCF files before MuJoCo reads them: the files it would open, and the memory it would allocate."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

from kinema.scene.io.files import Places, is_below, read_bytes, short
from kinema.scene.io.xml import LARGEST_FILE, LARGEST_NUMBER, Element, parse_xml

MOST_FILES = 256  # XML files of one model
MOST_COPIES = 1000  # <replicate>; MuJoCo's time grows with the square

# Attributes (up to an underscore) that make MuJoCo allocate or compute, with upper bounds.
LARGEST = {
    **{"nrow": 2048, "ncol": 2048, "width": 8192, "height": 65536, "params": 512},  # terrains, images, built-in meshes
    **{"dim": 10_000, "nsample": 10_000, "nkey": 10_000, "nuser": 1000, "nuserdata": 1_000_000},
    **{"njmax": 1_000_000, "nconmax": 1_000_000, "nstack": 100_000_000},
}
UNSUPPORTED = {
    "flexcomp": "deformable bodies",
    "flex": "deformable bodies",
    "composite": "composite bodies",
    "plugin": "plugins",
    "extension": "plugins",
}
FOLDERS = ("assetdir", "meshdir", "texturedir")
SECTIONS = ("actuator", "equality", "tendon", "contact")  # whose elements share one namespace
NAMES = ("name", "class", "childclass", "model", "file")  # text attributes, where "nan" is a name


class Scan:
    """Scans the XML of a model before MuJoCo does, to check the files it would open and the memory it would allocate.

    Attributes:
        files: The XML files of the model, resolved.
        places: Locations of named elements for messages, by kind and name.
    """

    def __init__(self, source: str, roots: Iterable[str | os.PathLike[str]]) -> None:
        self.source = source
        self.allowed = Places.of(source, roots).allowed
        self.files: set[str] = set()
        self.places: dict[tuple[str, str], str] = {}
        # MuJoCo's search folder depends on how a file was included, so consider all of them.
        self._folders: set[str] = set()
        self._inner = {""}  # meshdir and similar
        self._references: list[tuple[Element, str]] = []  # with the file they refer to

    def text(self, data: str) -> None:
        """Check a model given as text, which has no folder."""
        self._check(parse_xml(data.encode(errors="surrogatepass"), self.source), main=True)
        for element, name in self._references:
            what = f"<{element.tag}> refers to a file, but a text has no folder"
            raise element.error(what, got=short(name), fix="pass the model as a file")

    def file(self, main: str) -> None:
        """Check a model file and all files that it includes."""
        self._read(main, None)
        done = -1
        while done < len(self.files):  # each may add search folders for the others
            done = len(self.files)
            for element, name in list(self._references):
                for file in self._find(element, name):
                    if element.tag in ("include", "model") and os.path.realpath(file) not in self.files:
                        self._read(file, element)

    def _read(self, file: str, named_by: Element | None) -> None:
        self.files.add(os.path.realpath(file))
        self._folders.add(os.path.dirname(file))
        if named_by is not None and len(self.files) > MOST_FILES:
            raise named_by.error("the model includes too many files", expected=f"at most {MOST_FILES}")
        shown = self.source if named_by is None else os.path.relpath(file, os.path.dirname(self.source) or ".")
        root = parse_xml(read_bytes(file, LARGEST_FILE, shown), shown)
        self._check(root, main=named_by is None or named_by.tag == "model")

    def _check(self, root: Element, main: bool) -> None:
        """Check the elements of one file, and record the files they refer to."""
        if main and root.tag == "robot":
            raise root.error("this is a URDF model", fix="read it with read_urdf")
        if main and root.tag != "mujoco":
            fix = "name an MJCF file; SDF and USD are not read: export the model as MJCF or URDF"
            raise root.error("not an MJCF model", got=f"<{root.tag}>", expected="<mujoco>", fix=fix)
        stack = [(root, 1)]  # with the number of copies from <replicate>
        while stack:
            element, copies = stack.pop()
            tag, attributes, parent = element.tag, element.attributes, element.parent
            if tag in UNSUPPORTED:
                raise element.error(f"{UNSUPPORTED[tag]} are not supported", fix=f"delete <{tag}> from the file")
            if tag == "replicate":
                copies *= max(1, int(element.number("count", 1, most=MOST_COPIES)))
                if copies > MOST_COPIES:
                    raise element.error("too many copies, including nested ones", expected=f"at most {MOST_COPIES}")
            for name, value in attributes.items():
                _check_numbers(element, name, value)
                if name.startswith("file"):
                    self._references.append((element, value))
                if name in FOLDERS:
                    self._inner.add(value.replace("\\", "/"))
            if "name" in attributes:
                section = parent.tag if parent is not None and parent.tag in SECTIONS else tag
                self.places.setdefault((section.replace("freejoint", "joint"), attributes["name"]), element.where)
            stack += [(child, copies) for child in reversed(element.children)]

    def _find(self, element: Element, name: str) -> list[str]:
        """The files that MuJoCo might open for a name in the model; all must be inside the allowed folders."""
        if "://" in name:
            raise element.error("URLs are not supported", got=short(name), expected="a file")
        plain = name.replace("\\", "/")
        names = {plain, plain.rpartition("/")[2]}  # the second with strippath
        tried = {os.path.join(folder, inner, n) for folder in self._folders for inner in self._inner for n in names}
        tried |= {os.path.normpath(file) for file in tried}  # the same unless the path contains symbolic links
        inside = {file for file in tried if any(is_below(os.path.realpath(file), top) for top in self.allowed)}
        if not inside or any(os.path.lexists(file) for file in tried - inside):
            raise element.error(
                "the file lies outside the folders that the model may read",
                got=short(name),
                expected="a file below " + ", ".join(self.allowed),
                fix="read_mjcf(..., roots=[folder]) with a folder that contains it, if you trust the model",
            )
        found = sorted(file for file in inside if os.path.isfile(file))
        if not found:
            fix = "put the file there, or pass roots=[folder] with the folder that contains it"
            raise element.error("the file does not exist", got=short(name), fix=fix)
        if max(os.path.getsize(file) for file in found) > LARGEST_FILE:
            raise element.error("the file is too large", got=short(name), expected=f"at most {LARGEST_FILE >> 20} MB")
        return found


def _check_numbers(element: Element, name: str, value: str) -> None:
    """Refuse numbers that are not finite, or so large that MuJoCo would run out of memory or time."""
    if name in NAMES:
        return
    bound = LARGEST.get(name.partition("_")[0], LARGEST_NUMBER)
    for word in value.split():
        try:
            number = float(word)
        except ValueError:  # MuJoCo checks words
            continue
        if not math.isfinite(number):
            raise element.error(f"{name} is not finite", got=short(value), expected="finite numbers")
        if abs(number) > bound:
            raise element.error(f"{name} is too large", got=short(value), expected=f"at most {bound:g}")
