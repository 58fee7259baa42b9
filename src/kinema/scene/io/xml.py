"""Strict XML parser over expat: elements with line numbers; refuses features that no model file needs."""

from __future__ import annotations

import codecs
import difflib
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from kinema.errors import ModelError
from kinema.scene.io.files import read_bytes, short

LARGEST_FILE = 64 * 2**20  # bytes
DEEPEST = 256  # nested elements
MOST_ELEMENTS = 1_000_000  # some 300 MB of Python objects
LARGEST_NUMBER = 1e30  # squares and products of three stay finite

PLAIN_NUMBERS = "write numbers as 0.5 or 5e-1, without commas and units"

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)


@dataclass(eq=False, repr=False, slots=True)
class Element:
    """An element of a document.

    Attributes:
        tag: Tag name, with its prefix if any.
        attributes: Values by name, in file order.
        children: Child elements, in file order.
        text: Characters directly inside.
        line: Line of its start, counted from 1.
        file: Name of the file in messages.
        parent: The enclosing element.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    file: str
    parent: Element | None = None
    children: list[Element] = field(default_factory=list)
    text: str = ""

    @property
    def where(self) -> str:
        """Location for messages: `robot.urdf:12 <mass> of link 'a'`."""
        place = f"{self.file}:{self.line} <{short(self.tag)[1:-1]}>"
        if "name" in self.attributes:
            return f"{place} {short(self.attributes['name'])}"
        above = self.parent
        while above is not None and "name" not in above.attributes:
            above = above.parent
        return place if above is None else f"{place} of {above.tag} {short(above.attributes['name'])}"

    def error(self, what: str, *, got: object = None, expected: object = None, fix: str | None = None) -> ModelError:
        """An error at this element, to be raised."""
        return ModelError(what, where=self.where, got=got, expected=expected, fix=fix)

    def all(self, tag: str) -> list[Element]:
        """The children with a tag."""
        return [child for child in self.children if child.tag == tag]

    def child(self, tag: str) -> Element | None:
        """The child with a tag, None without one; raises for two."""
        found = self.all(tag)
        if len(found) > 1:
            raise found[1].error(f"a second <{tag}>", expected=f"one <{tag}> in <{self.tag}>", fix="delete one of them")
        return found[0] if found else None

    def required(self, tag: str, fix: str | None = None) -> Element:
        """The child with a tag; raises if missing."""
        found = self.child(tag)
        if found is None:
            raise self.error(f"<{tag}> is missing", fix=fix or f"add <{tag} .../> inside <{self.tag}>")
        return found

    def string(self, name: str) -> str:
        """A text attribute; raises if missing or blank."""
        value = self.attributes.get(name)
        if value is None or not value.strip():
            state = "missing" if value is None else "empty"
            raise self.error(f"attribute {name!r} is {state}", fix=f'write <{self.tag} {name}="...">')
        return value

    def numbers(self, name: str, count: int, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """An attribute of `count` finite numbers; required without a default."""
        return self._numbers(name, count, default, label=name, infinite=False)

    def number(
        self,
        name: str,
        default: float | None = None,
        *,
        label: str | None = None,
        infinite: bool = False,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
    ) -> float:
        """An attribute of one number; required without a default.

        Args:
            name: The attribute.
            default: Its value if missing.
            label: Name of the attribute in messages; `name` if None.
            infinite: Whether to allow `inf`, `-inf` and any magnitude.
            least: Inclusive lower bound.
            above: Exclusive lower bound.
            most: Inclusive upper bound.
        """
        label = label or name
        value = self._numbers(name, 1, None if default is None else (default,), label=label, infinite=infinite)[0]
        if name not in self.attributes:
            return value
        if least is not None and value < least:
            what = f"{label} is negative" if least == 0 else f"{label} is too small"
            raise self.error(what, got=value, expected=f"at least {least:g}")
        if above is not None and value <= above:
            what = f"{label} is not positive" if above == 0 else f"{label} is too small"
            raise self.error(what, got=value, expected=f"more than {above:g}")
        if most is not None and value > most:
            raise self.error(f"{label} is too large", got=value, expected=f"at most {most:g}")
        return value

    def _numbers(
        self, name: str, count: int, default: Sequence[float] | None, *, label: str, infinite: bool
    ) -> tuple[float, ...]:
        if name not in self.attributes and default is not None:
            return tuple(default)
        text = self.string(name)
        if "$" in text:
            fix = "expand the file with xacro first"
            raise self.error(f"{label} is a placeholder, not a value", got=short(text), fix=fix)
        words = text.split()
        amount = "one number" if count == 1 else f"{count} numbers"
        if len(words) != count:
            way = PLAIN_NUMBERS if "," in text else None
            raise self.error(f"{label} needs {amount}", got=short(text), expected=amount, fix=way)
        values = []
        for word in words:
            if not _NUMBER.fullmatch(word) and not _SPECIAL.fullmatch(word):
                expected = amount if count == 1 else f"{amount}, separated by spaces"
                raise self.error(f"{label} is not a number", got=short(text), expected=expected, fix=PLAIN_NUMBERS)
            value = float(word)
            if math.isnan(value) or (math.isinf(value) and not (infinite and _SPECIAL.fullmatch(word))):
                raise self.error(f"{label} is not finite", got=short(text), fix="write a finite number")
            if abs(value) > LARGEST_NUMBER and not infinite:
                raise self.error(f"{label} is too large", got=short(word), expected=f"at most {LARGEST_NUMBER:g}")
            values.append(value)
        return tuple(values)


def number_in(element: Element) -> float:
    """The finite number that is the text of an element."""
    text = element.text.strip()
    if not _NUMBER.fullmatch(text) or not abs(float(text)) <= LARGEST_NUMBER:
        raise element.error("the text is not a finite number", got=short(text))
    return float(text)


def close_to(word: str, known: Iterable[str]) -> str | None:
    """A fix that suggests the closest known word, None if none is close."""
    # Bounded, because the search is slow for many or long words.
    found = difflib.get_close_matches(word[:64], sorted(known)[:1000], n=1)
    return f"did you mean {found[0]!r}?" if found else None


def read_xml(path: str | os.PathLike[str]) -> Element:
    """The root element of an XML file in UTF-8.

    Raises:
        ModelError: The file is missing, larger than 64 MB, not UTF-8 or not well-formed, declares a document type or
            entities, nests elements more than 256 deep, or has more than a million elements.
    """
    name = os.fspath(path)
    return parse_xml(read_bytes(path, LARGEST_FILE), name)


def parse_xml(data: bytes, name: str) -> Element:
    """The root element of a document.

    Args:
        data: The document, in UTF-8.
        name: Name of the document in messages.
    """
    _check_utf8(data, name)
    # This encoding overrides a declared one, which could otherwise hide content.
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    builder = _Builder(parser, name, ascii_only=data.isascii())
    parser.XmlDeclHandler = builder.declaration
    parser.StartDoctypeDeclHandler = builder.refuse_declarations
    parser.EntityDeclHandler = builder.refuse_declarations
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        what = f"not well-formed XML: {expat.ErrorString(error.code)}"
        raise ModelError(what, where=f"{name}:{error.lineno}", fix=_FIXES.get(error.code)) from None
    if builder.root is None:
        raise ModelError("no element in the file", where=f"{name}:1")
    return builder.root


_FIXES = {
    expat.errors.codes[
        expat.errors.XML_ERROR_MISPLACED_XML_PI
    ]: "delete everything before <?xml ...?>, including blank lines",
    expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]: "delete everything after the last end tag",
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS]: "the file is empty or truncated; use a complete copy",
    expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]: "write the character itself instead of the entity",
    expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH]: "close the most recently opened element",
    expat.errors.codes[expat.errors.XML_ERROR_DUPLICATE_ATTRIBUTE]: "delete one of the two attributes of this name",
    expat.errors.codes[
        expat.errors.XML_ERROR_INVALID_TOKEN
    ]: 'write attributes as name="value", and the characters & and < in them as &amp; and &lt;',
    expat.errors.codes[expat.errors.XML_ERROR_SYNTAX]: 'begin the file with its outermost element, as <robot name="r">',
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN]: "the file ends inside a tag; use a complete copy",
}


def _check_utf8(data: bytes, name: str) -> None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ModelError("the file is UTF-16", where=f"{name}:1", expected="UTF-8", fix="save it as UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"byte 0x{data[error.start]:02x}"
        raise ModelError("not UTF-8", where=f"{name}:{line}", got=got, fix="save the file as UTF-8") from None
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        fix = "delete the zero bytes, or use a complete copy of the file"
        raise ModelError("a zero byte in the text", where=f"{name}:{line}", fix=fix)


class _Builder:
    """Parser callbacks, with a stack of open elements instead of recursion."""

    def __init__(self, parser: Any, name: str, *, ascii_only: bool) -> None:
        self.parser = parser
        self.name = name
        self.ascii_only = ascii_only
        self.root: Element | None = None
        self.open: list[Element] = []
        self.texts: list[list[str]] = []  # text of the open elements; joined at their end tags, for linear time
        self.count = 0

    def here(self) -> str:
        return f"{self.name}:{self.parser.CurrentLineNumber}"

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        known = encoding is None or encoding.lower() in ("utf-8", "utf8") or self.ascii_only
        if not known:
            raise ModelError("unsupported encoding", where=self.here(), got=short(encoding), expected="UTF-8")

    def refuse_declarations(self, *_: object) -> None:
        raise ModelError(
            "document types and entities are not supported: they can include files and expand to huge texts",
            where=self.here(),
            fix="delete <!DOCTYPE ...> and write out the entities",
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) == DEEPEST:
            raise ModelError("elements are nested too deep", where=self.here(), expected=f"at most {DEEPEST} levels")
        if self.count > MOST_ELEMENTS:
            raise ModelError("too many elements", where=self.here(), expected=f"at most {MOST_ELEMENTS}")
        above = self.open[-1] if self.open else None
        element = Element(tag, attributes, self.parser.CurrentLineNumber, self.name, above)
        if above is None:
            self.root = element
        else:
            above.children.append(element)
        self.open.append(element)
        self.texts.append([])

    def end(self, tag: str) -> None:
        self.open.pop().text = "".join(self.texts.pop())

    def characters(self, text: str) -> None:
        if not text.isspace():
            self.texts[-1].append(text)
