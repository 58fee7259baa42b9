"""Arrays of sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import TreeArrays
from kinema.scene.description import PlacedRobot, rotation_matrix
from kinema.scene.names import closest, listed


@dataclass(eq=False)
class SiteArrays:
    """Arrays of `dynamics.report.Sites`, shapes (n,), (n, 3), (n, 3, 3).

    Attributes:
        names: "robot/site".
    """

    names: list[str]
    link: np.ndarray
    offset: np.ndarray
    rotation: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str, why: str) -> int:
        """The index of a site.

        Raises:
            ModelError: It does not exist; the message begins with `why`.
        """
        if name not in self.names:
            expected, fix = listed(self.names, "a robot with sites"), closest(name, self.names)
            raise ModelError(f"{why} site {name!r}, which does not exist", expected=expected, fix=fix)
        return self.names.index(name)


def find_sites(tree: TreeArrays, placed: Sequence[PlacedRobot]) -> SiteArrays:
    """The sites of all robots, in body order.

    Raises:
        ModelError: Two sites of a robot have the same name.
    """
    bodies = {name: b for b, name in enumerate(tree.bodies)}
    found = [(one.name, body.name, site) for one in placed for body in one.robot.bodies for site in body.sites]
    names = [f"{robot}/{site.name}" for robot, _, site in found]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(f"two sites are called {name!r}", fix="site names must be unique within a robot")
    at = [bodies[f"{robot}/{body}"] for robot, body, _ in found]
    offset = [
        tree.body_offset[b] + tree.body_rotation[b] @ s.pose.position for b, (_, _, s) in zip(at, found, strict=True)
    ]
    rotation = [
        tree.body_rotation[b] @ rotation_matrix(s.pose.rotation) for b, (_, _, s) in zip(at, found, strict=True)
    ]
    return SiteArrays(
        names,
        np.array(tree.body_link[at] if at else [], np.int32),
        np.array(offset, float).reshape(-1, 3),
        np.array(rotation, float).reshape(-1, 3, 3),
    )
