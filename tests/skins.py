"""Shared by tests of particles against shapes: a step program, and distances and forces in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tests.compliant_law import normal_force
from torch import Tensor

from kinema.contact.collision.hulls import Hulls, hull_tables
from kinema.contact.collision.narrow_phase import Shapes
from kinema.contact.collision.terrain import VALLEY, Terrain, terrain_tables
from kinema.contact.compliant import penalty_force
from kinema.contact.particles.particle_shape import Frames, Placed, Skin, particle_kernels, place_shapes, push_links
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Array, Float, Index, Int, kernel, mat33, vec3
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import Rollout, rollout
from kinema.lang.programs.program import Program
from kinema.math import Force, Motion
from kinema.scene.convex_hull import Hull, prism
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, PLANE, SPHERE, TERRAIN, Mesh
from pairs import height_field, rock

KINDS = (PLANE, SPHERE, CAPSULE, CYLINDER, BOX, MESH, TERRAIN)
SKIN = ("radius", "k_e", "k_d", "k_f", "friction")
AROUND = 0.3  # [m], how deep particles are found under terrain
LINKS = 3  # the world, the first link of a tree, one more
ROOT = np.array([1, 1])
SIZES = {
    PLANE: [0.0, 0.0, 0.0],
    SPHERE: [0.3, 0.0, 0.0],
    CAPSULE: [0.2, 0.25, 0.0],
    CYLINDER: [0.3, 0.2, 0.0],
    BOX: [0.3, 0.2, 0.25],
    MESH: [1.2, 0.9, 1.1],
    TERRAIN: [0.0, 0.0, 0.0],
}


def hills() -> Mesh:
    """Rough ground, 2 m wide, with ridges and valleys."""
    return height_field(0.12 * np.random.default_rng(0).normal(size=(7, 7)), 1.0)


@kernel
def report(push: Array[Force], out: Array[Force]):
    for k in range(len(push)):
        out[k] = push[k]


@kernel
def report_forces(i: Index, f: Array[vec3], out: Array[vec3]):
    out[i] = f[i]


class _Arrays:
    """Stands for a program where buffers are wanted as arrays of given numbers."""

    def __init__(self, given: dict[str, np.ndarray]) -> None:
        self.given = given

    def constant(self, name: str, element: type, values: Any) -> Any:
        array = np.asarray(values, np.int32 if element is Int else np.float64)
        return array.item() if array.ndim == 0 else array

    def parameter(self, name: str, element: type, count: int) -> Any:
        return self.given[name]

    def scratch(self, name: str, element: type, count: int) -> Any:
        return np.zeros((count, *{vec3: (3,), mat33: (3, 3), Motion: (6,), Force: (6,)}[element]))


@dataclass
class Scene:
    """Particles and shapes of one kind.

    Attributes:
        kind: Kind of the shapes.
        count: Number of particles.
        links: The link of every shape; 0 is the world, 1 and 2 are of one tree.
        law: Contact law.
        size: Of all shapes.
        rotation: Of every shape in its link, the identity by default.
        ground: Triangles of terrain.
        touching: 0 for particles that pass through everything, 1 by default.
    """

    kind: str
    count: int
    links: tuple[int, ...] = (2,)
    law: Any = penalty_force
    size: tuple[float, ...] | None = None
    rotation: np.ndarray | None = None
    ground: Mesh = field(default_factory=hills)
    touching: np.ndarray | None = None

    @cached_property
    def hull(self) -> Hull | None:
        return {CYLINDER: prism(24), MESH: rock(14, 3)}.get(self.kind)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.tile(self.size or SIZES[self.kind], (len(self.links), 1)).astype(float)

    @cached_property
    def corners(self) -> np.ndarray:
        """Of the hull, scaled [m]."""
        assert self.hull is not None
        size = self.sizes[0]
        return self.hull.vertices * (size[[0, 0, 1]] if self.kind == CYLINDER else size)

    @cached_property
    def reach(self) -> float:
        if self.hull is not None:
            return float(np.linalg.norm(self.corners, axis=1).max())
        size = self.sizes[0]
        return float(np.linalg.norm(size) if self.kind == BOX else size.sum())

    def arguments(self, p: Any) -> dict[str, Any]:
        """What the kernels take, but particles, as buffers of a program."""
        m = len(self.links)
        rotation = np.tile(np.eye(3), (m, 1, 1)) if self.rotation is None else self.rotation
        made: dict[str, Any] = {
            "shapes": Shapes(
                link=p.constant("link", Int, np.array(self.links)),
                offset=p.parameter("offset", vec3, m),
                rotation=p.constant("rotation", mat33, rotation),
                size=p.parameter("size", vec3, m),
                reach=p.constant("reach", Float, np.full(m, self.reach)),
            ),
            "which": p.constant("which", Int, np.arange(m)),
            "frames": Frames(
                root=p.constant("root", Int, ROOT),
                R=p.parameter("R", mat33, LINKS),
                p=p.parameter("p", vec3, LINKS),
                V=p.parameter("V", Motion, LINKS),
            ),
            "skin": Skin(
                **{k: p.parameter(k, Float, self.count) for k in SKIN},
                touching=p.constant("touching", Int, np.ones(self.count) if self.touching is None else self.touching),
            ),
            "press": p.scratch("press", Force, m),
            "push": p.scratch("push", Force, LINKS),
        }
        for name in ("seen", "placed"):
            kinds = {"R": mat33, "p": vec3, "V": Motion, "size": vec3}
            made[name] = Placed(**{k: p.scratch(f"{name}_{k}", kind, m) for k, kind in kinds.items()})
        if self.hull is not None:
            arrays = hull_tables([self.hull] * m, [self.kind == CYLINDER] * m)
            kinds = {"vertex": vec3}
            made["tables"] = Hulls(**{k: p.constant(f"hull_{k}", kinds.get(k, Int), a) for k, a in arrays.items()})
        elif self.kind == TERRAIN:
            arrays = terrain_tables(self.ground, AROUND)
            kinds = dict.fromkeys(("vertex", "edge_normal", "vertex_normal"), vec3)
            kinds |= dict.fromkeys(("left", "below", "cell", "depth"), Float)
            made["tables"] = Terrain(**{k: p.constant(f"t_{k}", kinds.get(k, Int), a) for k, a in arrays.items()})
        return made

    @cached_property
    def program(self) -> Program:
        """A step: contact, semi-implicit Euler; links stay where they are (as belts do). Outputs: f, push."""
        p, n = Program("skin"), self.count
        x, v, f = p.state("x", vec3, n), p.state("v", vec3, n), p.scratch("f", vec3, n)
        inv_mass = p.parameter("inv_mass", Float, n)
        a = self.arguments(p)
        tables = [a["tables"]] if "tables" in a else []
        touch = particle_kernels(self.law)[self.kind]
        gravity, dt = p.parameter("gravity", vec3), p.parameter("dt", Float)
        shapes = (a["shapes"], a["which"], *tables, a["seen"], a["placed"])
        p.call(place_shapes, a["shapes"], a["frames"], a["seen"], a["placed"])
        p.call(touch, *shapes, a["skin"], dt, x, v, f, a["press"], count=n)
        p.call(push_links, a["shapes"], a["frames"], a["placed"], a["press"], a["push"])
        p.call(report, a["push"], p.output("push_out", Force, LINKS))
        p.call(report_forces, f, p.output("f_out", vec3, n), count=n)
        p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=n)
        return p

    def run(self, given: dict[str, Tensor], steps: int, **options: Any) -> Rollout:
        state = {k: given[k] for k in ("x", "v")}
        rest = {k: t for k, t in given.items() if k not in state}
        record = ("f_out", "push_out")
        return rollout(self.program, steps, state, rest, record=record, options=RunOptions(**options))

    def plain(self, given: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Forces on particles [N] and wrenches on links of one step, by the kernels' Python source."""
        numbers = {k: t.double().numpy() for k, t in given.items()}
        a = self.arguments(_Arrays(numbers))
        f = np.zeros((self.count, 3))
        tables = [a["tables"]] if "tables" in a else []
        place_shapes.python(a["shapes"], a["frames"], a["seen"], a["placed"])
        particle_kernels(self.law)[self.kind].python(
            a["shapes"], a["which"], *tables, a["seen"], a["placed"], a["skin"], float(numbers["dt"]), numbers["x"],
            numbers["v"], f, a["press"], count=self.count,
        )  # fmt: skip
        push_links.python(a["shapes"], a["frames"], a["placed"], a["press"], a["push"])
        return f, a["push"]

    def poses(self, given: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """R, p of the shapes in the world."""
        R, p, offset = (given[k].numpy() for k in ("R", "p", "offset"))
        link = np.array(self.links)
        inner = np.tile(np.eye(3), (len(link), 1, 1)) if self.rotation is None else self.rotation
        return R[link] @ inner, p[link] + np.einsum("sij,sj->si", R[link], offset)

    # -- the same in numpy ----------------------------------------------------------------------------------------

    def distances(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signed distances [m] of points q, shape (n, 3), from a shape in its frame, and unit normals."""
        size, up = self.sizes[0], np.array([0.0, 0.0, 1.0])
        if self.kind == PLANE:
            return q[:, 2], np.tile(up, (len(q), 1))
        if self.kind in (SPHERE, CAPSULE):
            d = q - np.clip(q[:, 2], -size[1], size[1])[:, None] * up
            length = np.linalg.norm(d, axis=1)
            return length - size[0], d / length[:, None]
        if self.kind == BOX:
            e = np.abs(q) - size
            out, face = np.maximum(e, 0), np.eye(3)[e.argmax(1)]
            length = np.linalg.norm(out, axis=1)
            inside = length == 0
            normal = np.sign(q) * np.where(inside[:, None], face, out / np.where(inside, 1, length)[:, None])
            return np.where(inside, e.max(1), length), normal
        if self.kind == TERRAIN:
            mesh = self.ground
            d, _ = nearest_of_triangles(q, mesh.vertices[mesh.faces])
            length = np.linalg.norm(d, axis=1) * np.where(above(q, mesh.vertices[mesh.faces]), 1.0, -1.0)
            return length, d / length[:, None]
        assert self.hull is not None
        loops = [(f[0], f[k], f[k + 1]) for f in self.hull.faces for k in range(1, len(f) - 1)]
        triangles = self.corners[np.array(loops)]
        d, _ = nearest_of_triangles(q, triangles)
        normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        heights = np.einsum("tj,ntj->nt", normals, q[:, None] - triangles[:, 0])
        inside, length = heights.max(1) < 0, np.linalg.norm(d, axis=1)
        outward = np.where(inside[:, None], normals[heights.argmax(1)], d / length[:, None])
        return np.where(inside, heights.max(1), length), outward

    def second(
        self, q: np.ndarray, radius: np.ndarray, distance: np.ndarray, normal: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of terrain: the nearest face that a ball is over and that is across a valley from the nearest place."""
        triangles = self.ground.vertices[self.ground.faces]
        n = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        n /= np.linalg.norm(n, axis=1, keepdims=True)
        height = np.einsum("tj,ntj->nt", n, q[:, None] - triangles[:, 0])
        counts = _over(q, triangles, n) & (height > -AROUND) & (height < radius[:, None]) & (normal @ n.T < VALLEY)
        place = q - distance[:, None] * normal
        counts &= np.einsum("tj,ntj->nt", n, place[:, None] - triangles[:, 0]) > 0
        best = np.where(counts, np.abs(height), np.inf).argmin(1)
        rows = np.arange(len(q))
        return np.where(counts.any(1), height[rows, best], np.inf), n[best]

    def contacts(self, q: np.ndarray, radius: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Distances and normals of all places where balls touch a shape, in its frame."""
        found = [self.distances(q)]
        if self.kind == TERRAIN:
            distance, n = self.second(q, radius, *found[0])
            found.append((np.where(found[0][0] < radius, distance, np.inf), n))
        return found

    def forces(self, given: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Forces on particles [N], wrenches (moment, force) on links, distances, shape (shapes, places, particles)."""
        n = {k: t.numpy() for k, t in given.items()}
        R, p = self.poses(given)
        f, push, found = np.zeros((self.count, 3)), np.zeros((LINKS, 6)), []
        for s, link in enumerate(self.links):
            v, arm = n["v"], n["x"] - n["p"][1]
            if link > 0:
                v = v - n["V"][link, 3:] - np.cross(n["V"][link, :3], arm)
            places = self.contacts((n["x"] - p[s]) @ R[s], n["radius"] + 0.5 * n["dt"] * np.abs(v).sum(1))
            for distance, inner in places:
                force = law_of(n, distance, inner @ R[s].T, v)
                f += force
                if link > 0:
                    push[link] -= np.concatenate([np.cross(arm, force).sum(0), force.sum(0)])
            found.append([distance for distance, _ in places])
        return f, push, np.array(found)


def law_of(n: dict[str, np.ndarray], distance: np.ndarray, normal: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Forces [N] of the smooth cone on balls that move at v [m/s] relative to a surface."""
    v_n = (normal * v).sum(1)
    depth = np.where(np.isfinite(distance), n["radius"] - distance, -1.0)
    f_n, rubs, share = normal_force(depth, v_n, n["dt"], n["k_e"], n["k_d"])
    slip = (n["k_f"] * share)[:, None] * (v - normal * v_n[:, None])
    b = n["friction"] * rubs
    return normal * f_n[:, None] - slip * (b / np.sqrt(b**2 + (slip**2).sum(1) + 1e-24))[:, None]


def nearest_of_triangles(q: np.ndarray, triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [m] from the nearest points of triangles, shape (t, 3, 3), to q, shape (n, 3), and the triangles."""
    a, b, c = (triangles[:, k] for k in range(3))
    n = np.cross(b - a, c - a)
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    height = np.einsum("tj,ntj->nt", n, q[:, None] - a)
    best = np.where(_over(q, triangles, n), np.abs(height), np.inf)
    vectors = height[..., None] * n
    for one, two in ((a, b), (b, c), (c, a)):
        along, d = two - one, q[:, None] - one
        t = np.clip(np.einsum("ntj,tj->nt", d, along) / (along**2).sum(1), 0, 1)
        out = d - t[..., None] * along
        length = np.linalg.norm(out, axis=2)
        vectors = np.where((length < best)[..., None], out, vectors)
        best = np.minimum(best, length)
    nearest = best.argmin(1)
    return vectors[np.arange(len(q)), nearest], nearest


def above(q: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Whether points are above, or beside, ground without overhangs: seen along z."""
    up = np.tile([0.0, 0.0, 1.0], (len(triangles), 1))
    over = _over(q, triangles, up)
    n = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    height = np.einsum("tj,ntj->nt", n, q[:, None] - triangles[:, 0])
    return (height[np.arange(len(q)), over.argmax(1)] > 0) | ~over.any(1)


def _over(q: np.ndarray, triangles: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Whether the line through a point along a vector per triangle passes through it, shape (n, t)."""
    over = np.ones((len(q), len(triangles)), bool)
    for k in range(3):
        one, two = triangles[:, k], triangles[:, (k + 1) % 3]
        over &= np.einsum("tj,ntj->nt", np.cross(along, two - one), q[:, None] - one) >= 0
    return over


def rotations(random: np.random.Generator, n: int) -> np.ndarray:
    """Random rotation matrices."""
    q, r = np.linalg.qr(random.normal(size=(n, 3, 3)))
    q = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]
    return q * np.sign(np.linalg.det(q))[:, None, None]


def numbers(scene: Scene, seed: int = 0, speed: float = 0.5) -> dict[str, Tensor]:
    """Links in any pose and motion; particles about the first shape, from deep inside it to beyond their radius."""
    random = np.random.default_rng(seed)
    n, m = scene.count, len(scene.links)
    R = rotations(random, LINKS)
    R[0] = np.eye(3)
    p = random.uniform(-0.5, 0.5, (LINKS, 3))
    V = np.concatenate([random.normal(size=(LINKS, 3)), 0.3 * random.normal(size=(LINKS, 3))], 1)
    p[0], V[0] = 0.0, 0.0
    offset = random.uniform(-0.1, 0.1, (m, 3))
    if scene.kind != PLANE:
        offset[1:] += 5.0  # apart, each with particles of its own
    made = {
        "R": R, "p": p, "V": V, "offset": offset, "size": scene.sizes,
        "radius": random.uniform(0.03, 0.06, n), "k_e": random.uniform(600, 1000, n), "k_d": random.uniform(3, 9, n),
        "k_f": random.uniform(20, 60, n), "friction": random.uniform(0.3, 0.9, n), "inv_mass": random.uniform(2, 5, n),
        "gravity": np.array([0.3, -0.2, -9.81]), "dt": np.array(1e-3),
    }  # fmt: skip
    given = {k: torch.tensor(a) for k, a in made.items()}
    at = _points(scene, random, n)
    R_WS, p_WS = scene.poses(given)
    which = np.arange(n) % m
    given["x"] = torch.tensor(p_WS[which] + np.einsum("nij,nj->ni", R_WS[which], at))
    v = speed * random.normal(size=(n, 3))
    v[::3] *= 0.01  # sticking
    v[1::9] *= 10.0  # sliding fast
    moved = np.array([V[scene.links[s], 3:] + np.cross(V[scene.links[s], :3], x - p[1]) * (scene.links[s] > 0)
                      for s, x in zip(which, given["x"].numpy(), strict=True)])  # fmt: skip
    given["v"] = torch.tensor(v + moved)
    return given


def _points(scene: Scene, random: np.random.Generator, n: int) -> np.ndarray:
    """Points in the frame of a shape: three quarters touch, some deep inside, the rest is within 0.1 m of it."""
    endless = scene.kind in (TERRAIN, PLANE)
    half = 0.7 if endless else scene.reach + 0.1
    found: list[list[np.ndarray]] = [[], [], [], []]
    while min(map(len, found)) < (n + 3) // 4:
        q = random.uniform(-half, half, (1000, 3))
        d, _ = scene.distances(q)
        ranges = ((-0.02, 0.02), (0.0, 0.03), (-0.1 if endless else -0.5, 0.0), (0.06, 0.1))
        for points, (low, high) in zip(found, ranges, strict=True):
            points.extend(q[(d > low) & (d < high)])
    return np.array([found[k % 4][k // 4] for k in range(n)])
