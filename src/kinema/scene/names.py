"""Names of things in a scene: patterns with * and ?, and the known names that are close to an unknown one."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable

SHOWN = 20  # names in a message


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern: * matches any text, ? any character."""
    return "*" in name or "?" in name


def matcher(pattern: str) -> Callable[[str], bool]:
    """A predicate: whether a whole name matches a pattern; * matches any text including slashes, ? any character."""
    found = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
    return lambda name: found(name) is not None


def listed(names: Iterable[str], none: str = "nothing") -> str:
    """Names for a message, at most `SHOWN`; `none` if empty."""
    known = list(dict.fromkeys(names))
    more = f", ... ({len(known) - SHOWN} more)" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more if known else none


def closest(name: str, known: Iterable[str]) -> str | None:
    """A suggested fix for an unknown name: the closest known names, None if none is close."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(known)), 3, 0.6)
    return "write " + " or ".join(map(repr, close)) if close else None
