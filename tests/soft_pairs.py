"""Shared by tests of soft things that touch each other: scenes, and all pairs and forces in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tests.compliant_law import normal_force

import kinema as kn
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.block import block, surface
from kinema.scene.shapes.sheet import sheet

THICK = 0.03
SKIN = kn.Skin(k_e=10.0, k_d=0.03, k_f=0.1, friction=0.4, thickness=THICK)
CLOTH = kn.Cloth(density=0.3, mu=60.0, lam=40.0, viscosity=0.02, bending=1e-3)
SOLID = kn.Solid(density=300.0, mu=3e3, lam=4e3, viscosity=1.0)


# -- scenes ----------------------------------------------------------------------------------------------------------


def fold(model: kn.Model, radius: float) -> torch.Tensor:
    """A sheet in the xy plane bent around the y axis by half a turn; the upper half lies 2 * radius over the lower."""
    x = model.initial_state().x
    s, bent = x[:, 0], np.pi * radius
    angle = (s / radius).clamp(0.0, np.pi)
    made = x.clone()
    made[:, 0] = torch.where(s < 0, s, torch.where(s < bent, radius * angle.sin(), bent - s))
    made[:, 2] = radius * (1.0 - angle.cos())
    return made


def folded(squares: int = 12, skin: kn.Skin = SKIN, gravity: float = 0.0) -> tuple[kn.Model, torch.Tensor]:
    """A sheet folded over itself, its halves a little nearer than its thickness."""
    scene = kn.Scene(gravity=(0.0, 0.0, gravity))
    scene.add_cloth(sheet(1.2, 0.5, (squares, max(squares // 2, 1))), "cloth", material=CLOTH, skin=skin)
    model = kn.compile(scene, torch.float64)
    return model, fold(model, 0.47 * skin.thickness)


def two_cloths(squares: int = 6) -> tuple[kn.Model, torch.Tensor]:
    """Two sheets, one over the other and turned, nearer than the mean of their thicknesses."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    thin = kn.Skin(k_e=8.0, k_d=0.02, k_f=0.2, friction=0.3, thickness=0.7 * THICK)
    scene.add_cloth(sheet(0.6, 0.6, (squares, squares)), "low", material=CLOTH, skin=SKIN)
    turned = (np.cos(0.1), 0.0, 0.0, np.sin(0.1))
    scene.add_cloth(
        sheet(0.5, 0.5, (squares, squares)), "high", material=CLOTH, skin=thin, pos=(0.02, 0.01, 0.022), rot=turned
    )
    model = kn.compile(scene, torch.float64)
    return model, model.initial_state().x


def two_blocks() -> tuple[kn.Model, torch.Tensor]:
    """A solid on another one, nearer than their thickness."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    scene.add_solid(block((2, 2, 1), 0.1), "low", material=SOLID, skin=SKIN)
    turned = (np.cos(0.2), 0.0, 0.0, np.sin(0.2))
    scene.add_solid(block((2, 2, 1), 0.08), "high", material=SOLID, skin=SKIN, pos=(0.013, 0.007, 0.115), rot=turned)
    model = kn.compile(scene, torch.float64)
    return model, model.initial_state().x


def cloth_on_ball() -> tuple[kn.Model, torch.Tensor]:
    """A sheet over a solid ball."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    scene.add_solid(ball(0.2, 2), "ball", material=SOLID, skin=SKIN)
    scene.add_cloth(sheet(0.4, 0.4, (5, 5)), "cloth", material=CLOTH, skin=SKIN, pos=(0.017, 0.011, 0.21))
    model = kn.compile(scene, torch.float64)
    return model, model.initial_state().x


def crumpled(seed: int, squares: int = 5) -> tuple[kn.Model, torch.Tensor, torch.Tensor]:
    """A sheet, a block and a few particles, all thrown into a small space, and velocities."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    skin = kn.Skin(k_e=40.0, k_d=0.3, k_f=2.0, friction=0.4, thickness=0.05, neighbours=64)
    thin = kn.Skin(k_e=30.0, k_d=0.1, k_f=1.0, friction=0.8, thickness=0.03, neighbours=64)
    scene.add_cloth(sheet(0.5, 0.5, (squares, squares)), "cloth", material=CLOTH, skin=skin)
    scene.add_solid(block((2, 2, 2), 0.1), "block", material=SOLID, skin=thin)
    scene.add_particles(np.zeros((10, 3)), "dust", mass=0.01, skin=thin)
    model = kn.compile(scene, torch.float64)
    random = np.random.default_rng(seed)
    x = 0.6 * model.matter.x + random.normal(size=model.matter.x.shape) * 0.08
    x += random.normal(size=3) * 10.0  # far from the origin, on all sides of it
    return model, torch.tensor(x), torch.tensor(random.normal(size=x.shape))


# -- the same in numpy -----------------------------------------------------------------------------------------------


@dataclass
class Triangles:
    """Triangles that may touch, with the edges and corners that they share, and the skin of every particle."""

    corner: np.ndarray
    vertex: np.ndarray
    rest: np.ndarray
    skin: dict[str, np.ndarray]


def triangles_of(model: kn.Model) -> Triangles:
    """From the meshes of the model, not from its tables of contact."""
    matter = model.matter
    faces = [surface(one.mesh.tets) for one in matter.solids]
    faces += [matter.cloth.mesh.triangles] if matter.cloth else []
    inner = np.zeros(len(matter), bool)
    for one in matter.solids:
        inner[one.mesh.tets.ravel()] = True
    corner = np.concatenate(faces)
    inner[corner.ravel()] = False
    rest = (matter.solids[0] if matter.solids else matter.cloth).mesh.vertices
    names = ("k_e", "k_d", "k_f", "friction", "thickness")
    rows = {n: dict(zip(matter.owners[f"skin_{n}"], matter.numbers[f"skin_{n}"], strict=True)) for n in names}
    skin = {n: np.array([rows[n][matter.names[k]] for k in matter.owner]) for n in names}
    return Triangles(corner, np.flatnonzero(~inner), rest, skin)


def nearest(q: np.ndarray, simplex: np.ndarray) -> np.ndarray:
    """Weights of the nearest places of triangles, edges or points, shape (n, k, 3), to q, shape (n, 3)."""
    k = simplex.shape[1]
    if k == 1:
        return np.ones((len(q), 1))
    if k == 2:
        along = simplex[:, 1] - simplex[:, 0]
        t = np.clip(((q - simplex[:, 0]) * along).sum(1) / (along**2).sum(1), 0, 1)
        return np.stack([1 - t, t], 1)
    axes = np.stack([simplex[:, 1] - simplex[:, 0], simplex[:, 2] - simplex[:, 0]], 2)
    inner = np.linalg.solve(np.swapaxes(axes, 1, 2) @ axes, (np.swapaxes(axes, 1, 2) @ (q - simplex[:, 0])[..., None]))[
        ..., 0
    ]
    weights = np.concatenate([1 - inner.sum(1, keepdims=True), inner], 1)
    best = np.full(len(q), np.inf)
    for ends in ((0, 1), (1, 2), (2, 0)):
        w = np.zeros((len(q), 3))
        w[:, ends] = nearest(q, simplex[:, ends])
        d = np.linalg.norm(q - (w[..., None] * simplex).sum(1), axis=1)
        weights = np.where(((d < best) & (inner.min(1) <= 0) | (d < best) & (inner.sum(1) >= 1))[:, None], w, weights)
        best = np.minimum(best, d)
    return weights


def pairs_of(model: kn.Model, x: np.ndarray, tables: Triangles | None = None, gap: float = 0.0) -> np.ndarray:
    """All pairs (particle, triangle) in contact, or with a gap [m] below the given one, shape (n, 2)."""
    made = tables or triangles_of(model)
    p, t = (a.ravel() for a in np.meshgrid(made.vertex, np.arange(len(made.corner)), indexing="ij"))
    limit = 0.5 * (made.skin["thickness"][p] + made.skin["thickness"][made.corner[t, 0]])
    distances = []
    for place in (x, made.rest):
        simplex = place[made.corner[t]]
        distances.append(np.linalg.norm(place[p] - (nearest(place[p], simplex)[..., None] * simplex).sum(1), axis=1))
    own = model.matter.owner[p] == model.matter.owner[made.corner[t, 0]]
    touching = (distances[0] < limit + gap) & ~(own & (distances[1] < limit))
    return np.stack([p, t], 1)[touching]


def forces_of(model: kn.Model, x: np.ndarray, v: np.ndarray, dt: float = 5e-4) -> np.ndarray:
    """Contact forces [N] of a step of dt [s], from all pairs.

    Those of triangles, less those of the edges and plus those of the corners that they share.
    """
    made = triangles_of(model)
    f = np.zeros_like(x)
    corner = made.corner
    every = {k: np.sort(corner[:, [k, (k + 1) % 3]], 1) for k in range(3)}
    edges, used = np.unique(np.concatenate(list(every.values())), axis=0, return_counts=True)
    of_edge = {tuple(e): n for e, n in zip(edges.tolist(), used, strict=True)}
    around = np.bincount(corner.ravel(), minlength=len(x))
    extra = np.zeros(len(x))
    for e, n in of_edge.items():
        extra[list(e)] += n - 1
    for p, t in pairs_of(model, x, made, gap=dt * float(np.linalg.norm(v, axis=1).max())):
        own = corner[t]
        terms = [(own, 1.0)]
        for k in range(3):
            n = of_edge[tuple(every[k][t].tolist())]
            terms.append((own[[k, (k + 1) % 3]], -(n - 1) / n))
            terms.append((own[[k]], (1 - around[own[k]] + extra[own[k]]) / around[own[k]]))
        numbers = {n: a[p] for n, a in made.skin.items()}
        limit = 0.5 * (numbers["thickness"] + made.skin["thickness"][own[0]])
        for which, share in terms:
            w = nearest(x[p][None], x[which][None])[0]
            out = x[p] - w @ x[which]
            d = np.linalg.norm(out)
            if share:
                _add_force(f, x, v, dt, p, own, which, w, out / d, limit - d, share, numbers)
    return f


def _add_force(f, x, v, dt, p, own, which, w, n, depth, share, numbers) -> None:
    """The law, with the couple that friction has at a distance by its own means: rigid motion of the triangle."""
    a, b, c = x[own]
    N = np.cross(b - a, c - a)
    size = np.linalg.norm(N)
    N /= size
    g = np.stack([np.cross(N, c - b), np.cross(N, a - c), np.cross(N, b - a)]) / size
    flat = np.array([1.0, 0.0, 0.0]) + g @ (x[p] - a)
    h = N @ (x[p] - a)
    # v_T = J v of the corners, one 3 by 3 matrix each.
    J = [flat[k] * np.eye(3) - h * np.outer(g[k], N) for k in range(3)]
    slide = v[p] - sum(J[k] @ v[own[k]] for k in range(3))
    v_n = n @ (v[p] - w @ v[which])
    v_t = slide - n * (n @ slide)
    f_n, rubs, part = (float(a) for a in normal_force(depth, v_n, dt, numbers["k_e"], numbers["k_d"]))
    limit = numbers["friction"] * rubs
    drag = numbers["k_f"] * part * v_t
    f_t = -drag * limit / np.sqrt(limit**2 + drag @ drag + 1e-24)
    f[p] += share * (f_n * n + f_t)
    for k, weight in zip(which, w, strict=True):
        f[k] -= share * weight * f_n * n
    for k in range(3):
        f[own[k]] -= share * J[k].T @ f_t


def found_forces(model: kn.Model, x: torch.Tensor, v: torch.Tensor, dt: float = 5e-4) -> np.ndarray:
    """Contact forces of one step: what it changes, less what the same step without contact changes."""
    none = {path: 0.0 for path in ("skin_k_e", "skin_k_d", "skin_k_f")}
    ends = [kn.step(model, kn.State(x=x, xd=v), dt=dt, params=params).xd for params in (None, none)]
    return ((ends[0] - ends[1]) / dt / model.resolve()["inv_mass"][:, None]).numpy()
