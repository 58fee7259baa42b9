"""Arrays of soft matter: particles, elements, springs, attachments, and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kinema.errors import InputError, ModelError
from kinema.lang.language.markers import Func
from kinema.model.surface import SurfaceArrays, find_surface
from kinema.model.tetmesh import TetArrays, tet_mesh
from kinema.model.tree import TreeArrays
from kinema.model.trimesh import TriArrays, tri_mesh
from kinema.scene.matter import CLOTH, SOLID, Attachment, Matter

if TYPE_CHECKING:
    from torch import Tensor

OF_ELEMENT = ("density", "mu", "lam", "viscosity", "activation")
OF_HINGE = ("bending", "bending_damping", "fold")
OF_AIR = ("drag", "lift")
OF_SKIN = ("radius", "k_e", "k_d", "k_f", "friction", "thickness")
OF_SPRING = ("stiffness", "damping", "rest")


@dataclass(eq=False)
class SolidArrays:
    """Tetrahedra with the same energy, of one or several solids.

    Attributes:
        energy: Elastic energy; None is the default.
        mesh: Rest mesh, with particle indices as corners.
        first: Index of its first element among all tetrahedra and triangles.
        viscous: Whether any element has viscosity.
    """

    energy: Func | None
    mesh: TetArrays
    first: int
    viscous: bool


@dataclass(eq=False)
class ClothArrays:
    """Triangles of all cloth.

    Attributes:
        mesh: Rest mesh, with particle indices as corners.
        first: Index of its first triangle among all tetrahedra and triangles.
        viscous: Whether any triangle has viscosity.
        bends: Whether any edge has bending stiffness or damping.
        damped: Whether any edge has bending damping.
        airy: Whether any triangle has drag or lift.
    """

    mesh: TriArrays
    first: int
    viscous: bool
    bends: bool
    damped: bool
    airy: bool


@dataclass(eq=False)
class PinArrays:
    """Particles attached to moving links: their indices, links, and positions on the links [m], shape (n, 3)."""

    particle: np.ndarray
    link: np.ndarray
    place: np.ndarray


@dataclass(eq=False)
class MatterArrays:
    """Arrays of all soft matter.

    Attributes:
        names: Names of the soft objects.
        owner: Index in `names` of every particle.
        x, v: Initial positions [m] and velocities [m/s], shapes (n, 3).
        held: 1 for particles fixed to the world, shape (n,).
        touching: 1 for particles that collide with shapes, shape (n,).
        square: 1 for particles with a square friction cone with shapes, 0 for a circular one, shape (n,).
        averaged: 1 for contact forces averaged over the step, 0 for instantaneous ones, shape (n,).
        solids: Tetrahedra, by energy.
        cloth: Triangles; None without cloth.
        ends: Particle indices of springs, shape (springs, 2).
        pins: Particles attached to moving links.
        surface: Surface for contact between soft objects and self-contact; None without.
        numbers: Parameter arrays by name.
        owners: Row names of each parameter array.
    """

    names: list[str] = field(default_factory=list)
    owner: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    x: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    v: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    held: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    touching: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    square: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    averaged: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    solids: list[SolidArrays] = field(default_factory=list)
    cloth: ClothArrays | None = None
    ends: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    pins: PinArrays = field(
        default_factory=lambda: PinArrays(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 3)))
    )
    surface: SurfaceArrays | None = None
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    owners: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def elements(self) -> int:
        """Number of tetrahedra and triangles."""
        return sum(len(one.mesh.tets) for one in self.solids) + (len(self.cloth.mesh.triangles) if self.cloth else 0)

    @property
    def rest(self) -> np.ndarray:
        """Rest positions [m], those of particles without elements their initial ones, shape (n, 3)."""
        found = self.x.copy()
        meshes = [(one.mesh.vertices, one.mesh.tets) for one in self.solids]
        if self.cloth is not None:
            meshes.append((self.cloth.mesh.vertices, self.cloth.mesh.triangles))
        for vertices, corners in meshes:
            own = np.unique(corners)
            found[own] = vertices[own]
        return found

    def of_elements(self, name: str, numbers: Tensor) -> dict[str, Tensor]:
        """Split an element parameter into tetrahedra per energy and triangles, by their names in programs."""
        parts = {f"solid{k}_{name}": (one.first, len(one.mesh.tets)) for k, one in enumerate(self.solids)}
        if self.cloth is not None:
            parts[f"cloth_{name}"] = (self.cloth.first, len(self.cloth.mesh.triangles))
        return {key: numbers[..., first : first + count] for key, (first, count) in parts.items()}

    def particles(self, name: str) -> slice:
        """Slice of the particles of a soft object."""
        if name not in self.names:
            raise InputError(f"there is no soft object {name!r}", expected=", ".join(self.names))
        own = np.flatnonzero(self.owner == self.names.index(name))
        return slice(int(own[0]), int(own[-1]) + 1)


def find_matter(
    tree: TreeArrays, matter: Sequence[Matter], attachments: Sequence[Attachment], wind: Sequence[float]
) -> MatterArrays:
    """Arrays of all soft matter.

    Raises:
        ModelError: A mesh is degenerate, a parameter is invalid, or a vertex is attached twice.
    """
    if not matter:
        return MatterArrays()
    starts = np.cumsum([0, *(len(m.vertices) for m in matter)])
    made = MatterArrays(
        names=[m.name for m in matter],
        owner=np.repeat(np.arange(len(matter), dtype=np.int32), np.diff(starts)),
        x=np.concatenate([m.vertices for m in matter]),
        v=np.concatenate([m.velocity for m in matter]),
        held=np.zeros(starts[-1], np.int32),
        touching=np.repeat([int(m.skin is not None) for m in matter], np.diff(starts)).astype(np.int32),
        square=np.repeat([int(m.skin is not None and not m.skin.cone) for m in matter], np.diff(starts)).astype(
            np.int32
        ),
        averaged=np.repeat([int(m.skin is None or m.skin.averaged) for m in matter], np.diff(starts)).astype(np.int32),
    )
    _add(made, "point_mass", [(m.name, m.mass) for m in matter])
    for name in OF_SKIN:
        _add(made, f"skin_{name}", [(m.name, [getattr(m.skin, name)]) for m in matter if m.skin is not None])
    _add_elements(made, matter, starts, wind)
    _add_springs(made, matter, starts)
    _attach(made, tree, matter, starts, attachments)
    skins = [m.skin for m in matter if m.skin is not None and m.skin.thickness > 0]
    if skins:
        made.surface = surface_of(made, np.concatenate([m.rest for m in matter]), max(s.neighbours for s in skins))
    return made


def surface_of(matter: MatterArrays, rest: np.ndarray, slots: int) -> SurfaceArrays | None:
    """The contact surface of all soft objects with a thickness, from the other arrays."""
    thickness = dict(zip(matter.owners["skin_thickness"], matter.numbers["skin_thickness"], strict=True))
    thick = np.array([thickness.get(name, 0.0) > 0 for name in matter.names])[matter.owner]
    triangles = np.zeros((0, 3), np.int32) if matter.cloth is None else matter.cloth.mesh.triangles
    return find_surface(rest, thick, [one.mesh.tets for one in matter.solids], triangles, slots)


def _add(made: MatterArrays, name: str, parts: Sequence[tuple[str, Any]]) -> None:
    """Add a parameter array, with the owners of its rows."""
    if parts:
        made.numbers[name] = np.concatenate([np.asarray(values, float) for _, values in parts])
        made.owners[name] = [owner for owner, values in parts for _ in range(len(values))]


def _spread(owner: str, name: str, given: Any, count: int, least: float = 0.0) -> np.ndarray:
    """A parameter as one value per element."""
    try:
        values = np.asarray(given, float)
    except (TypeError, ValueError):
        raise ModelError(f"{name} of {owner!r} is not numeric", got=repr(given)[:80]) from None
    if values.shape not in ((), (count,)) or not np.isfinite(values).all() or (values < least).any():
        got = f"shape {values.shape}" if values.shape not in ((), (count,)) else values.min()
        expected = f"one finite number or {count}, at least {least:g}"
        raise ModelError(f"{name} of {owner!r} is not usable", got=got, expected=expected)
    return np.broadcast_to(values, (count,))


def _add_elements(made: MatterArrays, matter: Sequence[Matter], starts: np.ndarray, wind: Sequence[float]) -> None:
    placed = list(zip(matter, starts.tolist(), strict=False))
    rest = np.concatenate([m.rest for m in matter])
    energies: dict[Func | None, list[tuple[Matter, int]]] = {}
    for m, start in placed:
        if m.kind == SOLID:
            energies.setdefault(m.material.energy, []).append((m, start))  # type: ignore[union-attr]
    sheets = [(m, start) for m, start in placed if m.kind == CLOTH]
    rows: dict[str, list[tuple[str, Any]]] = {name: [] for name in OF_ELEMENT}
    first = 0
    for energy, members in energies.items():
        corners, viscous = _join(members, rows, tet_mesh)
        made.solids.append(SolidArrays(energy, tet_mesh(rest, corners, whole=False), first, viscous))
        first += len(corners)
    if sheets:
        corners, viscous = _join(sheets, rows, tri_mesh)
        mesh = tri_mesh(rest, corners, whole=False)
        made.cloth = ClothArrays(mesh, first, viscous, *_add_cloth(made, sheets, mesh))
        if made.cloth.airy:
            made.numbers["wind"], made.owners["wind"] = np.asarray(wind, float), []
    viscous = any(one.viscous for one in made.solids) or (made.cloth is not None and made.cloth.viscous)
    for name in OF_ELEMENT:
        if name != "viscosity" or viscous:
            _add(made, name, rows[name])


def _join(
    members: Sequence[tuple[Matter, int]], rows: dict[str, list[tuple[str, Any]]], check: Callable[..., Any]
) -> tuple[np.ndarray, bool]:
    """Particle indices of the elements of several soft objects, and whether any has viscosity."""
    for m, _ in members:
        try:
            check(m.rest, m.elements)
        except InputError as error:
            raise ModelError(f"the mesh of {m.name!r} is not usable: {error}") from None
        for name in OF_ELEMENT:
            least = -np.inf if name == "activation" else 0.0
            rows[name].append((m.name, _spread(m.name, name, getattr(m.material, name), len(m.elements), least)))
        soft = min(float(rows[name][-1][1].min()) for name in ("density", "mu", "lam"))
        if not soft > 0:
            raise ModelError(f"density, mu and lam of {m.name!r} must be positive", got=soft)
        mu, lam = rows["mu"][-1][1], rows["lam"][-1][1]
        if m.kind == SOLID and m.material.energy is None and (lam <= mu / 8).any():  # type: ignore[union-attr]
            k = int(np.argmax(lam <= mu / 8))
            got, expected = (
                f"mu = {mu[k]:g}, lam = {lam[k]:g} Pa in element {k}",
                "lam > mu/8: the bulk modulus is lam - mu/8",
            )
            raise ModelError(f"{m.name!r} is unstable at rest", got=got, expected=expected)
    viscous = any(np.any(np.asarray(m.material.viscosity) > 0) for m, _ in members)  # type: ignore[union-attr]
    return np.concatenate([m.elements + start for m, start in members]), viscous


def _add_cloth(made: MatterArrays, sheets: Sequence[tuple[Matter, int]], mesh: TriArrays) -> tuple[bool, bool, bool]:
    """Add bending and aerodynamic parameters; returns whether edges bend, bending is damped, and air acts."""
    owner = np.array([made.names[k] for k in made.owner[mesh.hinges[:, 0]]]) if len(mesh.hinges) else np.zeros(0, str)
    given: dict[str, list[tuple[str, Any]]] = {name: [] for name in (*OF_HINGE, *OF_AIR)}
    for m, _ in sheets:
        for name in OF_HINGE:
            least = -np.inf if name == "fold" else 0.0
            count = int((owner == m.name).sum())
            given[name].append((m.name, _spread(m.name, name, getattr(m.material, name), count, least)))
        for name in OF_AIR:
            given[name].append((m.name, _spread(m.name, name, getattr(m.material, name), len(m.elements))))
    some = {name: any(np.any(values != 0) for _, values in parts) for name, parts in given.items()}
    bends, damped, airy = some["bending"], some["bending_damping"], some["drag"] or some["lift"]
    kept = (*OF_HINGE[:: 1 if damped else 2], *OF_AIR) if airy else OF_HINGE[:: 1 if damped else 2]
    for name in kept:
        if name in OF_AIR or bends or damped:
            _add(made, name, given[name])
    return bends or damped, damped, airy


def _add_springs(made: MatterArrays, matter: Sequence[Matter], starts: np.ndarray) -> None:
    ends = []
    rows: dict[str, list[tuple[str, Any]]] = {name: [] for name in OF_SPRING}
    for m, start in zip(matter, starts, strict=False):
        pairs = np.asarray(m.springs.ends)
        if not pairs.size:
            continue
        whole = pairs.ndim == 2 and pairs.shape[1] == 2 and np.issubdtype(pairs.dtype, np.integer)
        if not whole or (pairs < 0).any() or (pairs >= len(m.vertices)).any() or (pairs[:, 0] == pairs[:, 1]).any():
            expected = f"pairs of different particles, from 0 to {len(m.vertices) - 1}, shape (n, 2)"
            raise ModelError(f"springs of {m.name!r} have invalid ends", got=pairs.shape, expected=expected)
        length = np.linalg.norm(m.rest[pairs[:, 0]] - m.rest[pairs[:, 1]], axis=1)
        given = {n: getattr(m.springs, n) for n in OF_SPRING} | ({"rest": length} if m.springs.rest is None else {})
        for name, values in given.items():
            rows[name].append((m.name, _spread(m.name, f"springs.{name}", values, len(pairs))))
        ends.append(pairs + start)
    if ends:
        made.ends = np.concatenate(ends).astype(np.int32)
        for name, parts in rows.items():
            _add(made, f"spring_{name}", parts)


def _attach(
    made: MatterArrays,
    tree: TreeArrays,
    matter: Sequence[Matter],
    starts: np.ndarray,
    attachments: Sequence[Attachment],
) -> None:
    particles: list[np.ndarray] = []
    links: list[int] = []
    places: list[np.ndarray] = []
    seen = np.zeros(len(made), bool)
    R, p = tree.initial_poses()
    for one in attachments:
        at = one.vertices + starts[made.names.index(one.matter)]
        if seen[at].any() or len(set(at.tolist())) < len(at):
            raise ModelError(f"a vertex of {one.matter!r} is attached twice", got=one.vertices.tolist())
        seen[at] = True
        link = 0 if one.body is None else int(tree.body_link[tree.bodies.index(one.body)])
        if link == 0:
            made.held[at] = 1
            continue
        particles.append(at)
        links += [link] * len(at)
        places.append((made.x[at] - p[link]) @ R[link])
    if particles:
        made.touching[np.concatenate(particles)] = 0  # an attached vertex may be inside a shape of its link
        made.pins = PinArrays(
            np.concatenate(particles).astype(np.int32), np.array(links, np.int32), np.concatenate(places)
        )
