"""A compiled scene: arrays that do not change, and the numbers that can be learned, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, ModelError
from kinema.model.arrays import SceneArrays, find_arrays
from kinema.model.derived import derived_numbers
from kinema.model.indices import Index, ModelJoint, control_index, coordinate_index, joint_named, velocity_index
from kinema.model.paths import Place, check_overlaps, check_range, find_place
from kinema.model.state import State, as_part
from kinema.model.tree import OF_SPRING
from kinema.scene.joint_types import SINGLE
from kinema.scene.scene import Scene

OF_BODY = ("mass", "com", "inertia")
OF_JOINT = ("offset", "axis")
OF_DOF = ("armature", "damping")
OF_ACTUATOR = ("gear", "kp", "kd", "force")
OF_CONTACT = ("erp", "cfm", "k_e", "k_d", "k_f", "limit_restitution")
SPRINGS = f"only {' and '.join(SINGLE)} joints have springs; in place of a ball joint, take three revolute ones"
NUMPY = {torch.float64: np.float64, torch.float32: np.float32}
_OF_NUMPY: dict[Any, torch.dtype] = {np.dtype(kind): dtype for dtype, kind in NUMPY.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Model(SceneArrays):
    """Arrays of a scene, and its numbers as tensors that can be learned.

    Attributes:
        dtype: torch.float64 or torch.float32, of all tensors that belong to it.
    """

    dtype: torch.dtype
    _defaults: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _owners: dict[str, list[str]] = field(default_factory=dict, repr=False)
    _places: dict[str, Place] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        tree, limits = self.tree, self.constraints.limits
        of_dof = [name for name, n in zip(tree.joints, tree.dofs, strict=True) for _ in range(n)]
        for names, owners in ((OF_BODY, tree.bodies), (OF_JOINT, tree.joints), (OF_DOF, of_dof)):
            for name in names:
                self._add(name, getattr(tree, name), owners)
        springs = np.flatnonzero(tree.spring_coordinates() >= 0)
        for name in OF_SPRING:
            self._add(name, getattr(tree, name)[springs], [of_dof[d] for d in springs])
        for name in OF_ACTUATOR:
            self._add(name, getattr(self.actuators, name), self.actuators.names)
        for name in ("lower", "upper"):
            self._add(name, limits[name], self.constraints.limit_names)
        self._add("dry_friction", self.constraints.rubbing["friction"], self.constraints.rubbing_names)
        self._add("size", self.shapes.size, self.shapes.names)
        self._add("centre", self.shapes.offset, self.shapes.names)
        for name in ("friction", "restitution"):
            self._add(name, getattr(self.candidates, name), self.candidates.names)
        self._add("place", self.sites.offset, self.sites.names)
        self._add("gravity", self.gravity, [])
        for name in OF_CONTACT:
            self._add(f"contact/{name}", getattr(self.contact, name), [])
        for name, values in self.matter.numbers.items():
            self._add(name, values, self.matter.owners[name])
        for law in self.forces:
            for name, number in law.numbers.items():
                self._add(f"{law.name}/{name}", number.values, law.owners if number.each else [])

    def _add(self, name: str, values: Any, owners: list[str]) -> None:
        """An array of the model; `owners` name its rows."""
        if np.size(values):
            self._defaults[name] = torch.tensor(values, dtype=self.dtype)
            self._owners[name] = owners

    def __repr__(self) -> str:
        counts = f"{len(self.bodies)} bodies, {len(self.joints)} joints, {len(self.matter.x)} particles"
        return f"Model({counts}, nq={self.nq}, nv={self.nv}, {self.dtype})"

    @property
    def parameter_names(self) -> list[str]:
        """Names of all arrays of numbers that can be learned, see `parameters`."""
        return list(self._defaults)

    def initial_state(self, **tensors: Any) -> State:
        """The state as placed: joints at zero, free bodies and particles where they stand, joints at rest, no impulses.

        Args:
            tensors: In place of its own, as in `State.replace`: `model.initial_state(q=q)`.
        """
        placed: dict[str, Tensor] = {}
        if self.nv:
            placed |= {"q": torch.tensor(self.tree.q, dtype=self.dtype), "v": self.zeros(self.nv)}
        if len(self.matter):
            placed |= {n: torch.tensor(a, dtype=self.dtype) for n, a in (("x", self.matter.x), ("xd", self.matter.v))}
        if self.kept_impulses:
            placed["impulses"] = self.zeros(sum(self.kept_impulses.values()))
        return State(**placed).replace(**{n: as_part(n, given, self.dtype) for n, given in tensors.items()})

    def joint(self, name: str) -> ModelJoint:
        """A joint by handle or name: where it is in q and v, its kind and its limits.

        Raises:
            InputError: There is no such joint.
        """
        return joint_named(self, name)

    def q_index(self, name: str) -> Index:
        """Where something is in q: `state.q[..., model.q_index("dog/fl_knee")]`.

        Args:
            name: Handle or name of a joint ("dog/fl_knee"): a number, or a slice if it has several coordinates; of a
                robot ("dog"): the slice of all its joints; or a pattern ("dog/*_knee"): a list of numbers.

        Raises:
            InputError: There is no such joint or robot.
        """
        return coordinate_index(self, name)

    def v_index(self, name: str) -> Index:
        """Where something is in v, tau and joint accelerations; names as of `q_index`."""
        return velocity_index(self, name)

    def u_index(self, name: str) -> Index:
        """Where something is in u; names of actuators, robots or patterns, or of a joint that has an actuator."""
        return control_index(self, name)

    def x_index(self, name: str) -> slice:
        """The particles of a solid, of cloth or of particles in x and xd: `state.x[..., model.x_index(cloth), :]`.

        Raises:
            InputError: Nothing soft has this name.
        """
        return self.matter.particles(name)

    def zeros(self, *shape: int) -> Tensor:
        """Zeros in the model's precision, from numpy's allocator: torch.zeros wakes its threads, if there are many."""
        return torch.from_numpy(np.zeros(shape, NUMPY[self.dtype]))

    def parameters(self, *paths: str, requires_grad: bool = False) -> dict[str, Tensor]:
        """The named numbers, as fresh tensors to learn.

        A path is one number or row ("dog/trunk/mass"), a group of them, or a whole array ("mass"). Groups are all rows
        of something that has some ("dog/damping": of all joints of dog; "dog/trunk/size": of all shapes of its trunk),
        and all that match a pattern, in which * is any text and ? any character ("dog/*_knee/damping"). Of friction and
        restitution, which belong to pairs of shapes, they are the pairs in which a shape of the group takes part:
        "dog/friction", "dog/trunk/friction", "ground/friction". Groups have one row for each of their numbers; given
        to `simulate`, one number or a row axis of length 1 holds for all of them. Exact names come first.

        Args:
            paths: "robot/body/mass", ".../com", ".../inertia"; "robot/joint/offset", ".../axis", ".../armature",
                ".../damping", ".../stiffness", ".../rest", ".../lower", ".../upper", ".../dry_friction";
                "robot/actuator/gear", ".../kp", ".../kd", ".../force"; "robot/body/shape/size" (three numbers, see
                `narrow_phase.Shapes`), ".../centre", "ground/centre"; "robot/body/shape on ground/friction",
                ".../restitution", and so on for all `candidates.names`; "robot/site/place" [m], on its link; "gravity",
                "contact/erp", "contact/cfm", "contact/limit_restitution"; of soft things, one number per element:
                "solid/density", ".../mu", ".../lam", ".../viscosity", ".../activation"; per edge between triangles
                "cloth/bending", ".../bending_damping", ".../fold"; per triangle "cloth/drag", ".../lift", and "wind"
                [m/s]; per spring "particles/spring_stiffness", ".../spring_damping", ".../spring_rest"; per vertex
                ".../point_mass";
                one for each "solid/skin_radius", ".../skin_k_e", ".../skin_k_d", ".../skin_k_f", ".../skin_friction",
                ".../skin_thickness"; of forces of `Scene.add_force` "force/argument", and where each element has its
                own "force/robot/joint/argument", "force/ball/body on robot/body/argument", and so on;
                or a whole array: "mass", "axis", "friction", ..., in the order of `bodies`, `joints`, ..., of all that
                have such a number (only revolute and prismatic joints have "stiffness" and "rest").
            requires_grad: Whether they collect gradients.
        """
        found = {}
        for path in paths:
            name, at = self._locate(path)
            found[path] = self._defaults[name][at].detach().clone().requires_grad_(requires_grad)
        return found

    def as_tensors(self, params: Mapping[str, Any] | None) -> dict[str, Tensor]:
        """Given numbers as tensors of the model's precision and shape: numbers, lists and arrays are taken too.

        One number is taken for all rows of its path, and so is a row axis of length 1; tensors keep their graph, and
        must have the model's precision.

        Raises:
            InputError: A path is unknown, two paths overlap, or something is of the wrong type or shape.
        """
        if params is not None and not isinstance(params, Mapping):
            fix = "a dictionary, as model.parameters(path) gives it"
            got = type(params).__name__
            raise InputError("params is of the wrong type", got=got, expected="numbers or tensors by path", fix=fix)
        found = {}
        places = {path: self._locate(path) for path in params or {}}
        if len({name for name, _ in places.values()}) < len(places):
            check_overlaps(places, self._defaults)
        for path, given in (params or {}).items():
            name, at = places[path]
            wanted = self._defaults[name][at].shape
            if not isinstance(given, Tensor):
                try:
                    given = torch.as_tensor(given, dtype=self.dtype)
                except (TypeError, ValueError, RuntimeError):
                    got = type(given).__name__
                    raise InputError(f"parameter {path!r} is no number", got=got, expected="numbers") from None
            if given.dtype != self.dtype:
                expected = f"a tensor of {self.dtype}"
                raise InputError(f"parameter {path!r} has the wrong type", got=given.dtype, expected=expected)
            if given.ndim == 0:
                given = given.expand(wanted)
            has_rows = self._owners[name] and len(wanted) == self._defaults[name].ndim
            if has_rows and given.shape[-len(wanted) :] == (1, *wanted[1:]):
                given = given.expand(*given.shape[: -len(wanted)], *wanted)
            if given.shape[given.ndim - len(wanted) :] != wanted:
                expected = f"(*batch, {', '.join(map(str, wanted))})" if wanted else "(*batch,)"
                what, springs = f"parameter {path!r} has the wrong shape", SPRINGS if name in OF_SPRING else None
                raise InputError(what, got=tuple(given.shape), expected=expected, fix=springs)
            found[path] = given
        return found

    def resolve(self, params: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """All arrays of the model, with the given numbers in place of the model's own.

        Args:
            params: By path, shaped as `parameters` gives them, with batch dimensions in front for one per world; or one
                number for all of a path.

        Gradients:
            To every given tensor.

        Raises:
            InputError: As `as_tensors`; or a number is one that there cannot be: a negative mass, size, friction or
                damping, a restitution above 1. Where the model's own number is at such a bound, up to 0.001 beyond is
                taken, for differences about it.
        """
        arrays: dict[str, Tensor] = dict(self._defaults)
        changed: set[str] = set()
        for path, given in self.as_tensors(params).items():
            name, at = self._locate(path)
            changed.add(name)
            wanted = self._defaults[name][at].shape
            check_range(path, name, given, self._defaults[name][at])
            batch = tuple(given.shape[: given.ndim - len(wanted)])
            if at is ...:
                arrays[name] = given
                continue
            whole, inner = arrays[name], self._defaults[name].shape
            batch = np.broadcast_shapes(batch, whole.shape[: whole.ndim - len(inner)])
            whole = whole.expand(batch + inner).clone()
            whole[(..., at) + (slice(None),) * (len(inner) - 1)] = given
            arrays[name] = whole
        return arrays | self._derived | derived_numbers(self.matter, arrays, changed)

    def over_time(self, params: Mapping[str, Any] | None) -> dict[str, Tensor] | None:
        """Parameters of worlds as those of all times of their trajectories, whose axis of time is behind the batch."""
        if not params:
            return None
        params = self.as_tensors(params)
        plain = {name: self.parameters(name)[name].ndim for name in params}
        return {n: p.unsqueeze(-1 - plain[n]) if p.ndim > plain[n] else p for n, p in params.items()}

    @cached_property
    def _derived(self) -> dict[str, Tensor]:
        """What steps need beside the model's own numbers, for these."""
        with torch.inference_mode(False):  # they outlive the mode in which they are first asked for
            unused = {n: torch.zeros(1, dtype=self.dtype) for n in OF_SPRING if n not in self._defaults}
            return derived_numbers(self.matter, self._defaults, self._defaults) | unused

    def check_tensor(self, name: str, given: Tensor, *shape: int) -> None:
        """Raise InputError unless `given` is a tensor of the model's precision, and of this shape behind the batch."""
        if not isinstance(given, Tensor) or given.dtype != self.dtype:
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            made = f"torch.as_tensor(..., dtype={self.dtype})"
            fix = f"{name}.to({self.dtype})" if isinstance(given, Tensor) else made
            raise InputError(f"{name} has the wrong type", got=got, expected=f"a tensor of {self.dtype}", fix=fix)
        if given.shape[-len(shape) :] != shape:
            expected = f"(*batch, {', '.join(map(str, shape))})"
            raise InputError(f"{name} has the wrong shape", got=tuple(given.shape), expected=expected)

    @cached_property
    def _quaternions(self) -> tuple[list[str], np.ndarray]:
        """The joints that have one, and where its four numbers are in q, shape (joints, 4)."""
        first = self.tree.quaternions
        return [self.tree.joints[i] for i in first], np.array([*first.values()], int)[:, None] + np.arange(4)

    @cached_property
    def quaternion_places(self) -> list[int]:
        """Where quaternions begin in q."""
        return [int(first) for first in self._quaternions[1][:, 0]]

    def check_quaternions(self, q: Tensor) -> None:
        """Raise InputError where the quaternion of a joint is zero: it is no rotation, and no step would turn it."""
        names, at = self._quaternions
        if q.ndim == 1 and self._are_turns(q.tolist()):
            return
        if names and not (turned := q.numpy(force=True)[..., at].any(-1)).all():
            *world, joint = (int(i) for i in np.argwhere(~turned)[0])
            where = f"world {', '.join(map(str, world))}, " if world else ""
            fix = "begin with model.initial_state(); the identity is (1, 0, 0, 0)"
            where += f"joint {names[joint]!r}"
            raise InputError("the quaternion in q is zero", where=where, expected="(w, x, y, z) of any length", fix=fix)

    def _are_turns(self, q: list[float]) -> bool:
        """Whether no quaternion is zero."""
        return all([any(q[first : first + 4]) for first in self.quaternion_places])

    def _locate(self, path: str) -> tuple[str, Any]:
        """Array and index of a path."""
        if path not in self._places:
            try:
                self._places[path] = find_place(path, self._defaults, self._owners)
            except InputError as error:
                owner, _, name = str(path).rpartition("/")
                if name in OF_SPRING and owner in self.joints:
                    error.fix = SPRINGS
                raise
        return self._places[path]


def expect_model(given: object) -> None:
    """Raise InputError unless this is a model."""
    if not isinstance(given, Model):
        got = type(given).__name__
        raise InputError("this is no model", got=got, expected="a Model", fix="model = kinema.compile(scene)")


def compile(scene: Scene, dtype: torch.dtype | None = None) -> Model:
    """Turn a scene into arrays.

    Args:
        scene: What the user said.
        dtype: torch.float64 (the default if anything has joints, which are stiff), or torch.float32 (the default for
            soft matter alone).

    Raises:
        ModelError: The scene does not fit together; says which part and what to change.
    """
    if dtype not in (None, torch.float32, torch.float64):
        raise InputError("a model is in single or double precision", got=dtype, expected="torch.float64 or float32")
    if not isinstance(scene, Scene):
        fix = "scene = kinema.Scene(); scene.add_robot(...); kinema.compile(scene)"
        raise ModelError("only scenes are compiled", got=type(scene).__name__, expected="a Scene", fix=fix)
    arrays = find_arrays(scene)
    return Model(**{**vars(arrays), "dtype": dtype or _OF_NUMPY[arrays.dtype]})
