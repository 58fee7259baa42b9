"""Shared by tests of collision: random pairs of shapes, one link for each shape, all pairs of a family in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.contact.collision.hulls import Hulls, hull_tables
from kinema.contact.collision.narrow_phase import FAR, Pairs, Shapes, Touch
from kinema.contact.collision.pair_table import FAMILIES as TABLE
from kinema.contact.collision.terrain import Knobs, Terrain, terrain_tables
from kinema.lang import Array, Float, Index, Int, kernel, mat33, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program
from kinema.scene.convex_hull import Hull, convex_hull, cube, prism
from kinema.scene.description import Mesh

NAMES = ("turn1", "at1", "offset1", "size1", "turn2", "at2", "offset2", "size2")  # what is differentiated


@kernel
def report(i: Index, touch: Touch, gap: Array[Float], point: Array[vec3], normal: Array[vec3]):
    gap[i] = touch.gap[i]
    point[i] = touch.point[i]
    normal[i] = touch.normal[i]


def rotation(turn: Tensor) -> Tensor:
    """Rotation matrices of rotation vectors, shape (..., 3)."""
    zero = torch.zeros_like(turn[..., 0])
    x, y, z = turn.unbind(-1)
    rows = [torch.stack(r, -1) for r in ((zero, -z, y), (z, zero, -x), (-y, x, zero))]
    return torch.linalg.matrix_exp(torch.stack(rows, -2))


def random_turns(random: np.random.Generator, n: int) -> np.ndarray:
    """Rotation vectors, uniform in direction, up to half a turn."""
    way = random.normal(size=(n, 3))
    return way / np.linalg.norm(way, axis=1, keepdims=True) * random.uniform(0, np.pi, (n, 1))


@dataclass
class Found:
    """Candidates: gap (pairs, candidates), point and normal (pairs, candidates, 3)."""

    gap: Tensor
    point: Tensor
    normal: Tensor

    @property
    def least(self) -> np.ndarray:
        return self.gap.detach().numpy().min(1)

    @property
    def exists(self) -> np.ndarray:
        return self.gap.detach().numpy() < 0.5 * FAR


class _Arrays:
    """Stands for a program where constants are wanted as arrays."""

    def constant(self, name: str, element: type, values: Any) -> Any:
        array = np.asarray(values, None if element is Int else np.float64)
        return array.item() if array.ndim == 0 else array


@dataclass
class Family:
    """A kernel, its number of candidates, and the constant tables it takes between `pairs` and R.

    `tables` makes them for a program. Where there is a `search`, it takes the same and finds numbers of features; the
    kernel then takes these before R, and no margin. Worlds have `pairs` pairs each: shapes 0 ... pairs - 1 are the
    first ones, and each shape has a link of its own.
    """

    kernel: Any
    candidates: int
    tables: Callable[[Program], list[Any]] = lambda p: []
    pairs: int = 1
    reach: float = 1e2
    search: Any = None
    programs: dict[float, Program] = field(default_factory=dict)

    def program(self, margin: float) -> Program:
        if margin not in self.programs:
            p, n, m = Program("pairs"), self.pairs, self.pairs * self.candidates
            numbers = np.arange(n)
            shapes = Shapes(
                link=p.constant("link", Int, np.arange(1, 2 * n + 1)),
                offset=p.parameter("offset", vec3, 2 * n),
                rotation=p.parameter("rotation", mat33, 2 * n),
                size=p.parameter("size", vec3, 2 * n),
                reach=p.constant("reach", Float, np.full(2 * n, self.reach)),
            )
            pairs = Pairs(
                first=p.constant("first", Int, numbers),
                second=p.constant("second", Int, numbers + n),
                start=p.constant("start", Int, numbers * self.candidates),
                number=p.constant("number", Int, numbers),
                ranges=p.constant("ranges", Int, [0, n]),
                family=p.constant("family", Int, 0),
            )
            R, at = p.parameter("R", mat33, 2 * n + 1), p.parameter("p", vec3, 2 * n + 1)
            made = {"gap": Float, "point": vec3, "normal": vec3}
            touch = Touch(**{name: p.scratch(f"{name}_", kind, m) for name, kind in made.items()})
            out = [p.output(name, kind, m) for name, kind in made.items()]
            known, limit = (shapes, pairs, *self.tables(p)), p.constant("margin", Float, margin)
            if self.search is None:
                p.call(self.kernel, *known, R, at, limit, touch)
            else:
                features = p.scratch("features", Int, m)
                p.call(self.search, *known, R, at, limit, features)
                p.call(self.kernel, *known, features, R, at, touch)
            p.call(report, touch, *out, count=m)
            self.programs[margin] = p
        return self.programs[margin]

    def __call__(self, given: dict[str, Tensor], margin: float = 1e2) -> Found:
        """Candidates of pairs, from numbers by NAMES, shape (pairs of all worlds, 3) each.

        turn is a rotation vector after the rotation `frame` of the link, shape (pairs, 3, 3), the identity if not
        given; `inner` is the rotation of the shape in the link.
        """
        numbers = self.numbers(given)
        count = len(given["at1"])
        names = ("gap", "point", "normal")
        out = rollout(self.program(margin), 1, {}, numbers, record=names).outputs
        return Found(*(out[k].reshape(count, self.candidates, *out[k].shape[3:]) for k in names))

    def numbers(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of the program, by world."""
        n, count, dtype = self.pairs, len(given["at1"]), given["at1"].dtype
        worlds = count // n
        eye = torch.eye(3, dtype=dtype)

        def both(name: str) -> Tensor:
            sides = [given.get(f"{name}{k}", eye.expand(count, 3, 3)) for k in (1, 2)]
            return torch.cat([side.reshape(worlds, n, *side.shape[1:]) for side in sides], 1)

        R = both("frame") @ rotation(both("turn"))
        numbers = {"offset": both("offset"), "rotation": both("inner"), "size": both("size")}
        numbers["R"] = torch.cat([eye.expand(worlds, 1, 3, 3), R], 1)
        numbers["p"] = torch.cat([torch.zeros(worlds, 1, 3, dtype=dtype), both("at")], 1)
        return numbers

    def plain(self, given: dict[str, Tensor], margin: float = 1e2) -> Found:
        """The same by the kernel's Python source, on numpy scalars."""
        numbers = {k: v.numpy() for k, v in self.numbers(given).items()}
        n, m = self.pairs, self.pairs * self.candidates
        made = []
        for world in range(len(numbers["p"])):
            at = {k: np.ascontiguousarray(v[world]) for k, v in numbers.items()}
            first, links = np.arange(n), np.arange(1, 2 * n + 1)
            shapes = Shapes(link=links, offset=at["offset"], rotation=at["rotation"], size=at["size"],
                            reach=np.full(2 * n, self.reach))  # fmt: skip
            lists = {"first": first, "second": first + n, "start": first * self.candidates, "number": first}
            pairs = Pairs(**lists, ranges=np.array([0, n]), family=0)
            touch = Touch(gap=np.zeros(m), point=np.zeros((m, 3)), normal=np.zeros((m, 3)))
            known = (shapes, pairs, *self.tables(_Arrays()))
            if self.search is None:
                self.kernel.python(*known, at["R"], at["p"], margin, touch)
            else:
                features = np.zeros(m, np.int32)
                self.search.python(*known, at["R"], at["p"], margin, features)
                self.kernel.python(*known, features, at["R"], at["p"], touch)
            made.append(touch)
        gap, point, normal = (np.concatenate([getattr(t, k) for t in made]) for k in ("gap", "point", "normal"))
        c = self.candidates
        return Found(*(torch.tensor(v.reshape(-1, c, *v.shape[1:])) for v in (gap, point, normal)))


def rock(corners: int, seed: int) -> Hull:
    """The hull of random points, 0.15 m in size."""
    return convex_hull(0.15 * np.random.default_rng(seed).normal(size=(corners, 3)))


# Hulls of the four pairs of a world.
HULLS: dict[str, list[Hull | None]] = {
    "none": [None] * 4,
    "hull": [rock(8, 0), rock(12, 1), cube(), rock(30, 2)],
    "cube": [cube()] * 4,
    "cylinder": [prism(24)] * 4,
}


def plain_family(name: str) -> Family:
    """A family of the table of pairs that takes no tables."""
    return Family(TABLE[name].kernel, TABLE[name].candidates)


def hull_family(name: str, first: str, second: str) -> Family:
    """A family of the table of pairs that takes tables of hulls."""
    kinds = [first] * 4 + [second] * 4
    arrays = hull_tables([*HULLS[first], *HULLS[second]], [kind == "cylinder" for kind in kinds])

    def tables(p: Program) -> list[Any]:
        return [Hulls(**{k: p.constant(f"hull_{k}", vec3 if k == "vertex" else Int, v) for k, v in arrays.items()})]

    return Family(TABLE[name].kernel, TABLE[name].candidates, tables, 4, 0.3, TABLE[name].search)


def height_field(heights: np.ndarray, half: float) -> Mesh:
    """Triangles of heights [m] over the square of half size `half` [m], rows along x."""
    n = len(heights)
    x, y = np.meshgrid(*[np.linspace(-half, half, n)] * 2, indexing="ij")
    a = np.arange(n * n).reshape(n, n)
    corners = a[:-1, :-1], a[1:, :-1], a[1:, 1:], a[:-1, 1:]
    faces = [np.stack([corners[k] for k in ks], -1).reshape(-1, 3) for ks in ((0, 1, 2), (0, 2, 3))]
    return Mesh(np.stack([x.ravel(), y.ravel(), heights.ravel()], 1), np.concatenate(faces).astype(np.int32))


def hills() -> Mesh:
    """Rough ground, 6 m wide, with ridges and valleys."""
    x, y = np.meshgrid(*[np.linspace(-3, 3, 24)] * 2, indexing="ij")
    rough = 0.08 * np.random.default_rng(0).normal(size=x.shape)
    return height_field(0.3 * np.sin(2 * x) * np.cos(1.7 * y) + rough, 3.0)


def terrain_family(name: str, mesh: Mesh, around: float = 0.8) -> Family:
    """A family of the table of pairs on terrain.

    The points of the four pairs of a world are centres of spheres and ends of capsules, or corners of boxes.
    """
    arrays = terrain_tables(mesh, around)
    kinds = dict.fromkeys(("vertex", "edge_normal", "vertex_normal"), vec3)
    kinds |= dict.fromkeys(("left", "below", "cell", "depth"), Float)
    ball = name == "ball_terrain"
    at = [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, -1]] if ball else [[1, 1, 1], [1, -1, 1], [-1, 1, -1], [-1, -1, -1]]

    def tables(p: Program) -> list[Any]:
        knobs = Knobs(
            at=p.constant("knob_at", vec3, at),
            swell=p.constant("knob_swell", Float, [float(ball)] * 4),
            capsule=p.constant("knob_capsule", Int, [0, 0, int(ball), int(ball)]),
        )
        return [knobs, Terrain(**{k: p.constant(f"t_{k}", kinds.get(k, Int), v) for k, v in arrays.items()})]

    return Family(TABLE[name].kernel, TABLE[name].candidates, tables, 4)


def random_pairs(random: np.random.Generator, n: int, spread: float) -> dict[str, Tensor]:
    """Poses of n pairs: any rotations, and distances of links up to `spread` [m]; sizes are left to the caller."""
    way = random.normal(size=(n, 3))
    way *= spread * random.uniform(0.05, 1.0, (n, 1)) / np.linalg.norm(way, axis=1, keepdims=True)
    base = random.uniform(-1, 1, (n, 3))
    given = {"at1": base + way, "at2": base, "turn1": np.zeros((n, 3)), "turn2": np.zeros((n, 3))}
    given |= {f"offset{k}": random.uniform(-0.05, 0.05, (n, 3)) for k in (1, 2)}
    tensors = {k: torch.tensor(v) for k, v in given.items()}
    for name in ("frame1", "frame2", "inner1", "inner2"):
        tensors[name] = rotation(torch.tensor(random_turns(random, n)))
    return tensors


@dataclass
class Comparison:
    """Gradients against central differences: pairs, those at which a choice of features changes, worst of the rest."""

    pairs: int
    changes: int
    worst: float


def compare_gradients(family: Family, given: dict[str, Tensor], h: float = 1e-6) -> Comparison:
    """Of a weighted sum of gap, point and normal of all candidates of a pair, for every pair by itself.

    Pairs do not depend on each other: one component is moved in all of them at once. Differences are of fourth order.
    A choice changes nearby if second differences are those of a jump or a kink; then the pair is only counted.
    """
    shapes = ((family.candidates, *tail) for tail in ((), (3,), (3,)))
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes]

    def losses(numbers: dict[str, Tensor]) -> Tensor:
        found = family(numbers)
        # FAR is so large that its rounding would show in the differences.
        gap = torch.where(found.gap > 0.5 * FAR, torch.ones_like(found.gap), found.gap)
        parts = zip((gap, found.point, found.normal), weights, strict=True)
        return torch.stack([(part * w).flatten(1).sum(1) for part, w in parts]).sum(0)

    leaves = {k: given[k].clone().requires_grad_() for k in NAMES}
    value = losses({**given, **leaves})
    gradients = torch.autograd.grad(value.sum(), list(leaves.values()))
    wrong, changed = torch.zeros(len(value), dtype=torch.float64), torch.zeros(len(value), dtype=torch.bool)
    with torch.no_grad():
        for name, gradient in zip(NAMES, gradients, strict=True):
            scale = 1 + gradient.abs().amax(1)
            for k in range(3):
                if name.startswith("size") and (given[name][:, k] == 0).all():
                    continue  # the kind has no such number
                move = h * torch.eye(3, dtype=torch.float64)[k]
                down2, down, up, up2 = (losses({**given, name: given[name] + c * move}) for c in (-2, -1, 1, 2))
                slope = (8 * (up - down) - (up2 - down2)) / (12 * h)
                wrong = torch.maximum(wrong, (gradient[:, k] - slope).abs() / scale)
                for high, low in ((up, down), (up2, down2)):
                    changed |= (high - 2 * value + low).abs() > 1e-4 * scale * h
    excused = changed & (wrong > 1e-6)
    return Comparison(len(value), int(excused.sum()), float(wrong[~excused].max()))
