"""Handles, the return values of `Scene.add_robot` and similar methods: the name of an object, and access to its parts.

Handles are strings and usable wherever a name is: `scene.attach(cloth, [0], to=dog["trunk"])`,
`model.q_index(dog)`, `params={f"{dog}/friction": 0.5}`, `path[dog["trunk"]]`, dictionary keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex, overload

from kinema.errors import ModelError
from kinema.scene.description import FIXED, PlacedRobot, Robot
from kinema.scene.names import closest, listed


class Handle(str):
    """The name of an object in a scene or of one of its parts: "dog", "dog/fl_knee"."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The full name, as a plain string."""
        return str(self)


class MatterHandle(Handle):
    """The name of a soft object: a solid, cloth or particles. Its rows of x and xd are `model.x_index(handle)`."""

    __slots__ = ()


class RobotHandle(Handle):
    """The name of a robot in a scene. `dog["fl_knee"]` is the handle of a part, "dog/fl_knee".

    Its slices of q, v and u exist once the scene is compiled: `model.q_index(dog)`, `model.v_index(dog)` and
    `model.u_index(dog)`.
    """

    __slots__ = ("_robots",)
    _robots: Sequence[PlacedRobot]

    def __new__(cls, name: str, robots: Sequence[PlacedRobot] = ()) -> RobotHandle:
        """The name of a robot among `robots`."""
        made = super().__new__(cls, name)
        made._robots = robots
        return made

    @property
    def joints(self) -> tuple[Handle, ...]:
        """Handles of its moving joints."""
        return self._parts(joint.name for body in self._robot.bodies for joint in body.joints if joint.kind != FIXED)

    @property
    def bodies(self) -> tuple[Handle, ...]:
        """Handles of its bodies."""
        return self._parts(body.name for body in self._robot.bodies)

    @property
    def actuators(self) -> tuple[Handle, ...]:
        """Handles of its actuators."""
        return self._parts(actuator.name for actuator in self._robot.actuators)

    @property
    def sites(self) -> tuple[Handle, ...]:
        """Handles of its sites."""
        return self._parts(site.name for body in self._robot.bodies for site in body.sites)

    @overload
    def __getitem__(self, part: str) -> Handle: ...

    @overload
    def __getitem__(self, part: SupportsIndex | slice) -> str: ...

    def __getitem__(self, part: str | SupportsIndex | slice) -> str:
        """The handle of a joint, body, actuator or site, by its name within the robot."""
        if not isinstance(part, str):
            return super().__getitem__(part)
        name = f"{self}/{part}"
        if name not in (*self.joints, *self.bodies, *self.actuators, *self.sites):
            kinds = {"joints": self.joints, "bodies": self.bodies, "actuators": self.actuators, "sites": self.sites}
            own = {kind: [one.removeprefix(f"{self}/") for one in names] for kind, names in kinds.items()}
            expected = "\n".join(f"{kind} {listed(names)}" for kind, names in own.items() if names)
            fix = closest(part, [one for names in own.values() for one in names])
            what = f"robot {self.name!r} has no joint, body, actuator or site {part!r}"
            raise ModelError(what, expected=expected, fix=fix)
        return Handle(name)

    @property
    def _robot(self) -> Robot:
        return next(one.robot for one in self._robots if one.name == self)

    def _parts(self, names: Iterable[str]) -> tuple[Handle, ...]:
        return tuple(Handle(f"{self}/{name}") for name in names)
