"""A compiled model with the names of its elements, and messages about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kinema.errors import ModelError
from kinema.scene import description as kd
from kinema.scene.joint_types import TYPES

JOINTS = {one.mjcf: one for one in TYPES.values() if one.mjcf}


class Compiled:
    """A compiled model; `m` is MuJoCo's mjModel, with MuJoCo's array names.

    Args:
        mujoco: The module.
        model: The compiled model.
        source: File, for messages.
        places: "file:line" of named elements.
        ignore: Features to leave out instead of raising.
        warnings: MuJoCo's warnings from the compilation.
    """

    def __init__(
        self,
        mujoco: Any,
        model: Any,
        source: str,
        places: dict[tuple[str, str], str],
        ignore: frozenset[str],
        warnings: Iterable[str],
    ) -> None:
        self.mj, self.m, self.source, self.places, self.ignore = mujoco, model, source, places, ignore
        self.notes = [f"MuJoCo warns: {' '.join(warning.split())}" for warning in warnings]
        self.body_names = self._names("body", model.nbody, lambda i: f"body{i}")
        self.joint_names = self._names("joint", model.njnt, lambda i: f"{self._body_of_joint(i)}/joint{i}")
        self.geom_names = self._names("geom", model.ngeom, lambda i: "")
        self.actuator_names = self._names("actuator", model.nactuator, lambda i: f"actuator{i}")
        self.equality_names = self._names("equality", model.neq, lambda i: f"equality{i}")
        self.site_names = self._names("site", model.nsite, lambda i: f"site{i}")
        self.keyframe_names = self._names("key", model.nkey, lambda i: f"key{i}")
        self.controls: dict[int, tuple[float, float]] = {}  # of the actuators that are read: u = MuJoCo's scale - shift
        self.tendon_names = self._names("tendon", model.ntendon, lambda i: f"tendon{i}")
        self.meshes: dict[tuple[str, int], kd.Mesh] = {}

    def _names(self, kind: str, count: int, fallback: Any) -> list[str]:
        """Names of all elements of a kind; unnamed elements get a unique name."""
        object_type = getattr(self.mj.mjtObj, f"mjOBJ_{kind.upper()}")
        given = [self.mj.mj_id2name(self.m, object_type, i) for i in range(count)]
        taken = {name for name in given if name}
        names = []
        for i, name in enumerate(given):
            name = name or fallback(i)
            while not given[i] and name in taken:
                name += "_"
            if name:
                taken.add(name)
            names.append(name)
        return names

    def _body_of_joint(self, j: int) -> str:
        return self.body_names[self.m.jnt_bodyid[j]]

    def element(self, kind: str, i: int) -> str:
        names = {"body": self.body_names, "joint": self.joint_names, "geom": self.geom_names}
        names |= {"actuator": self.actuator_names, "equality": self.equality_names, "tendon": self.tendon_names}
        return f"{kind} {names[kind][i]!r}" if names[kind][i] else f"{kind} {i} (no name)"

    def refuse(self, feature: str, what: str, element: str = "", **parts: Any) -> None:
        """Raise, or add a note if the caller ignores the feature."""
        if feature in self.ignore:
            self.notes.append(f"left out: {what}")
            return
        fix = f"read_mjcf(..., ignore=[{feature!r}]) leaves it out"
        parts["fix"] = f"{parts['fix']}; {fix}" if "fix" in parts else fix
        raise self.error(what, element, **parts)

    def error(self, what: str, element: str, **parts: Any) -> ModelError:
        kind, _, name = element.partition(" ")
        return ModelError(what, where=self.places.get((kind, name.strip("'\"")), self.source), **parts)

    def word(self, enum: str, value: Any) -> str:
        """MuJoCo's name of a value: ("Geom", 2) is "sphere"."""
        return str(getattr(self.mj, f"mjt{enum}")(int(value)).name).partition("_")[2].lower()

    def disabled(self, *flags: str) -> bool:
        return any(self.m.opt.disableflags & int(getattr(self.mj.mjtDisableBit, f"mjDSBL_{f.upper()}")) for f in flags)

    def reference(self, j: int) -> float:
        """MuJoCo's coordinate of a hinge or slide joint in the pose of the file."""
        is_single = JOINTS[self.word("Joint", self.m.jnt_type[j])].is_single
        return float(self.m.qpos0[self.m.jnt_qposadr[j]]) if is_single else 0.0


def vector_of(values: Any) -> kd.Vector:
    """Three numbers as floats."""
    x, y, z = (float(v) for v in values)
    return x, y, z


def unit_of(values: Any) -> kd.Vector:
    """A vector scaled to length 1."""
    return vector_of(np.asarray(values) / np.linalg.norm(values))


def pose_of(position: Any, quaternion: Any) -> kd.Pose:
    """A pose; the quaternion is normalised."""
    w, x, y, z = (float(q) for q in np.asarray(quaternion) / np.linalg.norm(quaternion))
    return kd.Pose(vector_of(position), (w, x, y, z))
