"""A compiled scene: arrays that do not change, and the numbers that can be learned, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.points import PointArrays, ground_points
from kinema.model.tree import Placed, TreeArrays, build_tree
from kinema.scene.scene import Ground, Scene

OF_BODY = {"mass": (), "com": (3,), "inertia": (6,)}
OF_JOINT = {"offset": (3,), "axis": (3,)}
OF_DOF = {"armature": (), "damping": (), "stiffness": (), "rest": ()}
OF_GROUND = ("height", "restitution", "erp", "cfm")
SHAPES = OF_BODY | OF_JOINT | OF_DOF


@dataclass(frozen=True, eq=False)
class Model:
    """Arrays of a scene.

    Attributes:
        tree: Links, joints and bodies.
        gravity: [m/s^2], shape (3,).
        ground: The ground, if there is one.
        points: What may touch it.
        dtype: torch.float64 or torch.float32, of all tensors that belong to it.
    """

    tree: TreeArrays
    gravity: np.ndarray
    dtype: torch.dtype = torch.float64
    ground: Ground | None = None
    points: PointArrays | None = None
    _defaults: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in SHAPES:
            self._defaults[name] = torch.tensor(getattr(self.tree, name), dtype=self.dtype)
        self._defaults["gravity"] = torch.tensor(self.gravity, dtype=self.dtype)
        if self.ground is not None and self.points is not None:
            self._defaults["friction"] = torch.tensor(self.points.friction, dtype=self.dtype)
            self._defaults["radius"] = torch.tensor(self.points.radius, dtype=self.dtype)
            for name in OF_GROUND:
                self._defaults[f"ground/{name}"] = torch.tensor(getattr(self.ground, name), dtype=self.dtype)

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.tree.nq

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return self.tree.nv

    @property
    def bodies(self) -> list[str]:
        """Names of the bodies, "robot/body"."""
        return self.tree.bodies

    @property
    def joints(self) -> list[str]:
        """Names of the joints that move, "robot/joint"."""
        return self.tree.joints

    def initial_coordinates(self) -> Tensor:
        """Coordinates q as placed: joints at zero, free bodies where they stand. Shape (nq,)."""
        return torch.tensor(self.tree.q, dtype=self.dtype)

    def parameters(self, *paths: str, requires_grad: bool = False) -> dict[str, Tensor]:
        """The named numbers, as fresh tensors to learn.

        Args:
            paths: "robot/body/mass", ".../com", ".../inertia", "robot/joint/offset", ".../axis", ".../armature",
                ".../damping", ".../stiffness", ".../rest", "gravity", "ground/height", "ground/restitution",
                "ground/erp", "ground/cfm", or a whole array: "mass", "axis", ..., and for all points that may
                touch the ground "friction" and "radius".
            requires_grad: Whether they collect gradients.
        """
        found = {}
        for path in paths:
            name, at = self._locate(path)
            found[path] = self._defaults[name][at].detach().clone().requires_grad_(requires_grad)
        return found

    def resolve(self, params: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """All arrays of the model, with the given numbers in place of the model's own.

        Args:
            params: By path, shaped as `parameters` gives them, with batch dimensions in front for one per world.

        Gradients:
            To every given tensor.
        """
        arrays = dict(self._defaults)
        for path, given in (params or {}).items():
            name, at = self._locate(path)
            wanted = self._defaults[name][at].shape
            if not isinstance(given, Tensor) or given.dtype != self.dtype:
                got = f"{given.dtype}" if isinstance(given, Tensor) else type(given).__name__
                raise InputError(
                    f"parameter {path!r} has the wrong type", got=got, expected=f"a tensor of {self.dtype}"
                )
            if given.shape[given.ndim - len(wanted) :] != wanted:
                expected = f"(*batch, {', '.join(map(str, wanted))})" if wanted else "(*batch,)"
                raise InputError(f"parameter {path!r} has the wrong shape", got=tuple(given.shape), expected=expected)
            batch = given.shape[: given.ndim - len(wanted)]
            if at is ...:
                arrays[name] = given
                continue
            whole, inner = arrays[name], self._defaults[name].shape
            batch = torch.broadcast_shapes(batch, whole.shape[: whole.ndim - len(inner)])
            whole = whole.expand(batch + inner).clone()
            whole[(..., at) + (slice(None),) * (len(inner) - 1)] = given
            arrays[name] = whole
        return arrays

    def check_tensor(self, name: str, given: Tensor, count: int) -> None:
        """Raise InputError unless `given` has the model's precision and `count` numbers in its last axis."""
        if not isinstance(given, Tensor) or given.dtype != self.dtype:
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise InputError(f"{name} has the wrong type", got=got, expected=f"a tensor of {self.dtype}")
        if given.ndim == 0 or given.shape[-1] != count:
            raise InputError(f"{name} has the wrong shape", got=tuple(given.shape), expected=f"(*batch, {count})")

    def _locate(self, path: str) -> tuple[str, Any]:
        """Array and index of a path."""
        owner, _, name = path.rpartition("/")
        if path in self._defaults:
            return path, ...
        if name in OF_BODY and owner in self.tree.bodies:
            return name, self.tree.bodies.index(owner)
        if name in OF_JOINT and owner in self.tree.joints:
            return name, self.tree.joints.index(owner)
        if name in OF_DOF and owner in self.tree.joints:
            i = self.tree.joints.index(owner)
            d = int(self.tree.v_start[i])
            return name, d if self.tree.dofs[i] == 1 else slice(d, d + int(self.tree.dofs[i]))
        owners = self.tree.bodies if name in OF_BODY else self.tree.joints
        known = f"{', '.join(SHAPES)} or gravity" if name not in SHAPES else ", ".join(f"{o}/{name}" for o in owners)
        raise InputError(f"the model has no parameter {path!r}", expected=known or "nothing: the scene is empty")


def compile(scene: Scene, dtype: torch.dtype = torch.float64) -> Model:
    """Turn a scene into arrays.

    Args:
        scene: What the user said.
        dtype: torch.float64 (default: joints and contacts are stiff) or torch.float32.

    Raises:
        ModelError: The scene does not fit together; says which part and what to change.
    """
    if dtype not in (torch.float32, torch.float64):
        raise InputError("a model is in single or double precision", got=dtype, expected="torch.float64 or float32")
    placed = [Placed(one.name, one.robot, one.pose) for one in scene.robots]
    tree, ground = build_tree(placed), scene.ground
    points = ground_points(tree, placed, ground.friction, without=ground.without) if ground else None
    if points is not None and len(points.link) == 0:
        ground = points = None  # nothing to touch it
    return Model(tree, np.asarray(scene.gravity, float), dtype, ground, points)
