"""A compiled scene: constant arrays, and learnable parameters by name."""

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
from kinema.model.paths import Place, check_overlaps, check_range, find_place, path_of
from kinema.model.state import State, as_part
from kinema.model.tree import OF_SPRING
from kinema.scene.joint_types import SINGLE
from kinema.scene.names import closest, listed
from kinema.scene.scene import Scene

OF_BODY = ("mass", "com", "inertia")
OF_JOINT = ("offset", "axis")
OF_DOF = ("armature", "damping")
OF_ACTUATOR = ("gear", "kp", "kd", "force")
OF_CONTACT = ("erp", "cfm", "k_e", "k_d", "k_f", "limit_restitution")
SPRINGS = f"only {' and '.join(SINGLE)} joints have springs; replace a ball joint by three revolute ones"
NUMPY = {torch.float64: np.float64, torch.float32: np.float32}
_OF_NUMPY: dict[Any, torch.dtype] = {np.dtype(kind): dtype for dtype, kind in NUMPY.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Model(SceneArrays):
    """A compiled scene: its arrays, and its learnable parameters as tensors.

    Attributes:
        dtype: torch.float64 or torch.float32; precision of all its tensors.
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
        if tree.gravcomp.any():
            self._add("gravcomp", tree.gravcomp, tree.bodies)
        for name in ("fluid_density", "fluid_viscosity"):
            self._add(name, getattr(tree, name), [tree.bodies[b] for b in tree.dragged])
        transmissions = self.transmissions
        for name in ("stiffness", "damping"):
            self._add(f"tendon_{name}", getattr(transmissions, name), transmissions.tendon_names)
        general = [self.actuators.names[i] for i in transmissions.actuator]
        for name, key in (("actuator_gain", "gain"), ("actuator_bias", "bias"), ("least_force", "least_force")):
            self._add(name, getattr(transmissions, key), general)
        self._add("muscle", transmissions.curve, [self.actuators.names[i] for i in transmissions.muscle])
        activated = [self.actuators.names[i] for i in self.activations.actuators]
        self._add("activation_times", self.activations.times, activated)
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
        if self.soft is not None:
            self._add("contact/impratio", self.contact.impratio, [])
            for name, values in self.soft.numbers.items():
                self._add(name, values, self.soft.owners[name])
        for name, values in self.matter.numbers.items():
            self._add(name, values, self.matter.owners[name])
        for law in self.forces:
            for name, number in law.numbers.items():
                self._add(f"{law.name}/{name}", number.values, law.owners if number.each else [])

    def _add(self, name: str, values: Any, owners: list[str]) -> None:
        """Add a parameter array; `owners` are the names of its rows."""
        if np.size(values):
            self._defaults[name] = torch.tensor(values, dtype=self.dtype)
            self._owners[name] = owners

    def __repr__(self) -> str:
        counts = f"{len(self.bodies)} bodies, {len(self.joints)} joints, {len(self.matter.x)} particles"
        return f"Model({counts}, nq={self.nq}, nv={self.nv}, {self.dtype})"

    @property
    def parameter_names(self) -> list[str]:
        """Names of all parameter arrays, see `parameters`."""
        return list(self._defaults)

    def initial_state(self, **tensors: Any) -> State:
        """The initial state: joints at zero, free bodies and particles as placed.

        Velocities are zero, except initial velocities of soft matter; warm start impulses, activations and the time
        are zero.

        Args:
            tensors: Tensors to replace, as in `State.replace`: `model.initial_state(q=q)`.
        """
        placed: dict[str, Tensor] = {}
        if self.nv:
            placed |= {"q": torch.tensor(self.tree.q, dtype=self.dtype), "v": self.zeros(self.nv)}
        if len(self.matter):
            placed |= {n: torch.tensor(a, dtype=self.dtype) for n, a in (("x", self.matter.x), ("xd", self.matter.v))}
        if self.kept_impulses:
            placed["impulses"] = self.zeros(sum(self.kept_impulses.values()))
        if len(self.activations):
            placed["act"] = self.zeros(len(self.activations))
        if self.reads_time:
            placed["time"] = self.zeros()
        return State(**placed).replace(**{n: as_part(n, given, self.dtype) for n, given in tensors.items()})

    def keyframe(self, name: str) -> State:
        """A state that the file of a robot names: its joints as in the keyframe, everything else as initially.

        Args:
            name: "robot/home", or "home" if only one robot has a keyframe of this name. `keyframes.names` lists them.

        Raises:
            InputError: The model has no such keyframe, or several robots have one.
        """
        row = self._keyframe_row(name)
        q, v = (torch.tensor(a[row], dtype=self.dtype) for a in (self.keyframes.q, self.keyframes.v))
        act = {} if not len(self.activations) else {"act": torch.tensor(self.keyframes.act[row], dtype=self.dtype)}
        return self.initial_state(q=q, v=v, **act)

    def keyframe_controls(self, name: str) -> Tensor:
        """The controls u of a keyframe, shape (actuators,); zero for actuators of other robots. Names as `keyframe`."""
        return torch.tensor(self.keyframes.u[self._keyframe_row(name)], dtype=self.dtype)

    def _keyframe_row(self, name: str) -> int:
        known = self.keyframes.names
        found = [i for i, one in enumerate(known) if name in (one, one.partition("/")[2])]
        if len(found) != 1:
            what = f"several robots have a keyframe {name!r}" if found else f"the model has no keyframe {name!r}"
            expected = listed([known[i] for i in found] or known, "a robot file with keyframes")
            raise InputError(what, expected=expected, fix=closest(str(name), known))
        return found[0]

    def joint(self, name: str) -> ModelJoint:
        """A joint by handle or name: its indices in q and v, its kind and its limits.

        Raises:
            InputError: The model has no such joint.
        """
        return joint_named(self, name)

    def q_index(self, name: str) -> Index:
        """Index into q: `state.q[..., model.q_index("dog/fl_knee")]`.

        Args:
            name: Handle or name of a joint ("dog/fl_knee"), which gives an integer, or a slice for several coordinates;
                of a robot ("dog"), which gives the slice of all its joints; or a pattern ("dog/*_knee"), which gives a
                list of integers.

        Raises:
            InputError: The model has no such joint or robot.
        """
        return coordinate_index(self, name)

    def v_index(self, name: str) -> Index:
        """Index into v, tau and joint accelerations; names as in `q_index`."""
        return velocity_index(self, name)

    def u_index(self, name: str) -> Index:
        """Index into u; names of actuators, robots, patterns, or joints with an actuator."""
        return control_index(self, name)

    def x_index(self, name: str) -> slice:
        """Slice of a solid, cloth or particles in x and xd: `state.x[..., model.x_index(cloth), :]`.

        Raises:
            InputError: No soft object has this name.
        """
        return self.matter.particles(name)

    def zeros(self, *shape: int) -> Tensor:
        """Zeros in the model's precision, from numpy's allocator: torch.zeros may wake its thread pool."""
        return torch.from_numpy(np.zeros(shape, NUMPY[self.dtype]))

    def parameters(self, *paths: str, requires_grad: bool = False) -> dict[str, Tensor]:
        """Parameters by path, as new tensors.

        A path selects one row ("dog/trunk/mass"), a group of rows, or a whole array ("mass"). The name of a robot, body
        or soft object selects all its rows ("dog/damping": all joints of dog; "dog/trunk/size": all shapes of its
        trunk), a pattern all rows that match, where * matches any text and ? any character ("dog/*_knee/damping").
        Friction and restitution belong to contact pairs: a group selects all pairs with one of its shapes,
        "dog/friction", "dog/trunk/friction", "ground/friction". `simulate` broadcasts a single number, or a row axis of
        length 1, to all rows of a group. Exact names take precedence.

        Args:
            paths: Paths of these parameters, or names of whole arrays.

                - Per body: "robot/body/mass", ".../com", ".../inertia".
                - Per joint: "robot/joint/offset", ".../axis", ".../armature", ".../damping", ".../stiffness",
                  ".../rest", ".../lower", ".../upper", ".../dry_friction".
                - Per actuator: "robot/actuator/gear", ".../kp", ".../kd", ".../force"; of the kind "general" also
                  ".../actuator_gain", ".../actuator_bias" (three numbers each), ".../least_force"; with an activation
                  ".../activation_times" (three numbers); of muscles ".../muscle" (force, both ends of the range, lmin,
                  lmax, vmax, fpmax, fvmax).
                - Per tendon: "robot/tendon/tendon_stiffness", ".../tendon_damping".
                - Per body, if a body of the model has it: ".../gravcomp"; of bodies with drag ".../fluid_density",
                  ".../fluid_viscosity".
                - Per shape: "robot/body/shape/size" (three numbers, see `narrow_phase.Shapes`), ".../centre",
                  "ground/centre".
                - Per contact pair: "robot/body/shape on ground/friction", ".../restitution", for all
                  `candidates.names`.
                - In the contact law "convex": per contact pair ".../solref", ".../solimp", ".../torsional",
                  ".../rolling" [m], ".../friction_solref" (of elliptic cones, zero for that of solref); per limit,
                  joint with dry friction, mimic joint and loop ".../limit_solref", ".../limit_solimp",
                  ".../dry_solref", ..., ".../mimic_...", ".../loop_..."; and "contact/impratio".
                - Per site: "robot/site/place" [m], on its link.
                - Global: "gravity", "contact/erp", "contact/cfm", "contact/limit_restitution".
                - Per element of soft matter: "solid/density", ".../mu", ".../lam", ".../viscosity", ".../activation".
                - Per interior edge of cloth: "cloth/bending", ".../bending_damping", ".../fold".
                - Per triangle of cloth: "cloth/drag", ".../lift"; and "wind" [m/s].
                - Per spring: "particles/spring_stiffness", ".../spring_damping", ".../spring_rest".
                - Per vertex: ".../point_mass".
                - Per soft object: "solid/skin_radius", ".../skin_k_e", ".../skin_k_d", ".../skin_k_f",
                  ".../skin_friction", ".../skin_thickness".
                - Per force of `Scene.add_force`: "force/argument"; with one value per element,
                  "force/robot/joint/argument", "force/ball/body on robot/body/argument", and so on.
                - Whole arrays: "mass", "axis", "friction", ..., in the order of `bodies`, `joints`, ..., with a row for
                  everything that has such a parameter (only revolute and prismatic joints have "stiffness" and "rest").
            requires_grad: Whether the tensors require gradients.
        """
        found = {}
        for path in paths:
            name, at = self._locate(path)
            found[path] = self._defaults[name][at].detach().clone().requires_grad_(requires_grad)
        return found

    def rows(self, path: str) -> list[str]:
        """Paths of the rows that a path of `parameters` selects: "dog/*/damping" selects "dog/fl_hip/damping", ...

        Global parameters and whole arrays without owners have no rows.

        Raises:
            InputError: The path is unknown.
        """
        name, at = self._locate(path)
        owners = self._owners[name]
        places = np.atleast_1d(np.arange(len(owners))[at]) if owners else ()
        return [path_of(owners[i], name) for i in places]

    def as_tensors(self, params: Mapping[str, Any] | None) -> dict[str, Tensor]:
        """Parameters as tensors of the model's precision and shape, from numbers, lists, arrays or tensors.

        Broadcasts a single number, or a row axis of length 1, to all rows of its path. Tensors keep their graph, and
        must have the model's precision.

        Raises:
            InputError: A path is unknown, two paths overlap, or a value is of the wrong type or shape.
        """
        if params is not None and not isinstance(params, Mapping):
            fix = "a dictionary like model.parameters(path)"
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
                    raise InputError(f"parameter {path!r} is not numeric", got=got, expected="numbers") from None
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
        """All parameter arrays of the model, with the given parameters in place of the model's own.

        Args:
            params: Values by path, shaped as in `parameters`, with leading batch dimensions for one value per world; or
                one number for a whole path.

        Gradients:
            To every given tensor.

        Raises:
            InputError: As `as_tensors`; or a value is out of range: a negative mass, size, friction or damping, a
                restitution above 1. If the model's own value is at such a bound, values up to 0.001 beyond are allowed,
                for finite differences.
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
        """Parameters per world, with a time axis of length 1 behind the batch, to broadcast over trajectories."""
        if not params:
            return None
        params = self.as_tensors(params)
        plain = {name: self.parameters(name)[name].ndim for name in params}
        return {n: p.unsqueeze(-1 - plain[n]) if p.ndim > plain[n] else p for n, p in params.items()}

    @cached_property
    def _derived(self) -> dict[str, Tensor]:
        """Derived parameters of the model's own values."""
        with torch.inference_mode(False):  # cached tensors may outlive an inference mode
            unused = {n: torch.zeros(1, dtype=self.dtype) for n in OF_SPRING if n not in self._defaults}
            return derived_numbers(self.matter, self._defaults, self._defaults) | unused

    def check_tensor(self, name: str, given: Tensor, *shape: int) -> None:
        """Raise InputError unless `given` is a tensor of the model's precision with this shape behind the batch."""
        if not isinstance(given, Tensor) or given.dtype != self.dtype:
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            made = f"torch.as_tensor(..., dtype={self.dtype})"
            fix = f"{name}.to({self.dtype})" if isinstance(given, Tensor) else made
            raise InputError(f"{name} has the wrong type", got=got, expected=f"a tensor of {self.dtype}", fix=fix)
        if given.shape[given.ndim - len(shape) :] != shape:
            expected = f"({', '.join(('*batch', *map(str, shape)))})" if shape else "(*batch,)"
            raise InputError(f"{name} has the wrong shape", got=tuple(given.shape), expected=expected)

    @cached_property
    def _quaternions(self) -> tuple[list[str], np.ndarray]:
        """Names of the joints with a quaternion, and its indices in q, shape (joints, 4)."""
        first = self.tree.quaternions
        return [self.tree.joints[i] for i in first], np.array([*first.values()], int)[:, None] + np.arange(4)

    @cached_property
    def quaternion_places(self) -> list[int]:
        """Index in q of the first component of every quaternion."""
        return [int(first) for first in self._quaternions[1][:, 0]]

    def check_quaternions(self, q: Tensor) -> None:
        """Raise InputError if the quaternion of a joint is zero: not a rotation, and no step would change it."""
        names, at = self._quaternions
        if q.ndim == 1 and self._are_turns(q.tolist()):
            return
        if names and not (turned := q.numpy(force=True)[..., at].any(-1)).all():
            *world, joint = (int(i) for i in np.argwhere(~turned)[0])
            where = f"world {', '.join(map(str, world))}, " if world else ""
            fix = "start from model.initial_state(); the identity is (1, 0, 0, 0)"
            where += f"joint {names[joint]!r}"
            raise InputError("the quaternion in q is zero", where=where, expected="(w, x, y, z) of any length", fix=fix)

    def _are_turns(self, q: list[float]) -> bool:
        """Whether no quaternion is zero."""
        return all([any(q[first : first + 4]) for first in self.quaternion_places])

    def _locate(self, path: str) -> tuple[str, Any]:
        """Array and row index of a path."""
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
    """Raise InputError unless `given` is a model."""
    if not isinstance(given, Model):
        got = type(given).__name__
        raise InputError("not a model", got=got, expected="a Model", fix="model = kinema.compile(scene)")


def compile(scene: Scene, dtype: torch.dtype | None = None) -> Model:
    """Compile a scene into a model.

    Args:
        scene: The scene.
        dtype: torch.float64 (the default with joints, which are stiff), or torch.float32 (the default for soft matter
            alone).

    Raises:
        ModelError: The scene is inconsistent; names the part and what to change.
    """
    if dtype not in (None, torch.float32, torch.float64):
        raise InputError("unsupported dtype of a model", got=dtype, expected="torch.float64 or float32")
    if not isinstance(scene, Scene):
        fix = "scene = kinema.Scene(); scene.add_robot(...); kinema.compile(scene)"
        raise ModelError("compile needs a scene", got=type(scene).__name__, expected="a Scene", fix=fix)
    arrays = find_arrays(scene)
    return Model(**{**vars(arrays), "dtype": dtype or _OF_NUMPY[arrays.dtype]})
