"""SRDF files: pairs of links whose collisions are disabled."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kinema.scene.io.files import short
from kinema.scene.io.xml import close_to, read_xml


def read_disabled_collisions(path: str | os.PathLike[str], links: Iterable[str]) -> frozenset[frozenset[str]]:
    """Pairs of links of `<disable_collisions link1="a" link2="b"/>`; all else concerns planners.

    Args:
        path: The file.
        links: Names of the links of the robot.

    Raises:
        ModelError: The file cannot be read, is no SRDF file, or names a link that the robot does not have.
    """
    root, known = read_xml(path), set(links)
    if root.tag != "robot":
        raise root.error("not an SRDF file", got=f"<{short(root.tag)[1:-1]}>", expected="<robot> outermost")
    pairs = set()
    for element in root.all("disable_collisions"):
        names = [element.string("link1"), element.string("link2")]
        for name in names:
            if name not in known:
                raise element.error(f"the robot has no link {short(name)}", fix=close_to(name, known))
        if names[0] != names[1]:
            pairs.add(frozenset(names))
    return frozenset(pairs)
