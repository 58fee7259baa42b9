"""Stiffness that links feel from elements pinned to them.

A pinned vertex moves with its link, which feels the forces on it. Let an element have corners on a link and others,
with the gradients g_f of their shape functions. A rigid motion causes no strain, so that moving the link strains the
element as much as moving the other corners the opposite way: with the Jacobian J_f of a point of the link at each,

    energy <= 1/2 k sum_f |J_f q|^2,    k = volume (lam + 2 mu) times the largest eigenvalue of sum_f g_f g_f^T

and likewise for viscosity, springs and hinges. The largest eigenvalue of M^-1 sum k J_f^T J_f, with the mass matrix M
of the tree, bounds the squared frequency of links between fixed vertices. The squared frequency of links and vertices
together is at most the sum of both bounds. For an element on n links, the bound is n times the sum over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kinema.model.matter import MatterArrays
from kinema.model.tree import TreeArrays

TINY = 1e-12  # of the mean diagonal entry, added to the diagonal of M for links without mass


@dataclass(frozen=True)
class _Grip:
    """Points held by links: links and particles, shape (n,), k [N/m] and c [N s/m], shape (*batch, n)."""

    link: np.ndarray
    particle: np.ndarray
    stiff: Tensor
    rate: Tensor


@dataclass(frozen=True)
class Carried:
    """Bounds w^2 [1/s^2] and c [1/s] of each tree with pinned vertices, and its body with the most of them."""

    stiff: Tensor
    rate: Tensor
    bodies: list[str]


def carried_bounds(matter: MatterArrays, tree: TreeArrays, numbers: dict[str, Tensor]) -> Carried | None:
    """Bounds for links between fixed vertices; None if no vertex is pinned to a link that forces can move.

    Args:
        matter: The soft matter.
        tree: Its links, in their initial pose.
        numbers: `Model.resolve`, without gradients, in double precision; with several worlds, the worst counts.
    """
    pins = matter.pins
    if not len(pins.particle):
        return None
    R, p = tree.initial_poses()
    turning, shifting = _link_jacobians(tree, R, p)
    mass = _mass_matrix(tree, R, p, turning, shifting, numbers)
    moving, of_dof = np.repeat(tree.prescribed, tree.dofs) == 0, np.repeat(tree.root, tree.dofs)
    grips = list(_grips(matter, numbers))
    found = []
    for root in np.unique(tree.root[pins.link - 1]):
        dofs = torch.as_tensor(moving & (of_dof == root))
        if not dofs.any():
            continue
        L = torch.linalg.cholesky(mass[..., dofs, :][..., dofs])
        worst = [torch.zeros((), dtype=mass.dtype)] * 2
        loads = [torch.zeros_like(L)] * 2
        for grip in grips:
            own = np.flatnonzero(tree.root[grip.link - 1] == root)
            link = grip.link[own]
            arm = matter.x[grip.particle[own]] - p[link]
            J = shifting[link] + np.cross(turning[link], arm[:, :, None], axis=1)
            J_own = torch.as_tensor(J)[..., dofs]
            for k, weight in enumerate((grip.stiff, grip.rate)):
                loads[k] = loads[k] + torch.einsum("...n,nix,niy->...xy", weight[..., own], J_own, J_own)
        for k, load in enumerate(loads):
            half = torch.linalg.solve_triangular(L, load, upper=False)
            whole = torch.linalg.solve_triangular(L, half.transpose(-1, -2), upper=False)
            worst[k] = torch.linalg.eigvalsh(0.5 * (whole + whole.transpose(-1, -2))).max().clamp(min=0.0)
        links, counts = np.unique(pins.link[tree.root[pins.link - 1] == root], return_counts=True)
        body = tree.bodies[int(np.flatnonzero(tree.body_link == links[counts.argmax()])[0])]
        found.append((*worst, body))
    if not found:
        return None
    stiff, rate, bodies = zip(*found, strict=True)
    return Carried(torch.stack(stiff), torch.stack(rate), list(bodies))


def _grips(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Grip]:
    """All elements, springs and hinges between links and other vertices, and contacts of pinned vertices."""
    link_of = np.zeros(len(matter), np.int64)
    link_of[matter.pins.particle] = matter.pins.link
    meshes = [(one.first, one.mesh.tets, one.mesh.volume, one.mesh.rest_inverse) for one in matter.solids]
    if matter.cloth is not None:
        mesh = matter.cloth.mesh
        meshes.append((matter.cloth.first, mesh.triangles, mesh.area, mesh.rest_inverse))
    for first, corners, size, rest in meshes:
        slopes = np.concatenate([-rest.sum(1, keepdims=True), rest], axis=1)
        for row, link, others, links in _held(link_of, corners):
            gram = np.einsum("eni,enj->eij", slopes[row] * others[..., None], slopes[row])
            weight = torch.as_tensor(size[row] * np.linalg.eigvalsh(gram)[:, -1])
            at = torch.as_tensor(first + row)
            k = weight * (numbers["lam"] + 2.0 * numbers["mu"])[..., at]
            c = 2.0 * weight * numbers["viscosity"][..., at] if "viscosity" in numbers else 0.0 * k
            yield from _at_others(corners[row], link, others, links * k, links * c)
    if len(matter.ends):
        for row, link, others, links in _held(link_of, matter.ends):
            k, c = (numbers[f"spring_{n}"][..., torch.as_tensor(row)] for n in ("stiffness", "damping"))
            yield from _at_others(matter.ends[row], link, others, links * k, links * c)
    if matter.cloth is not None and matter.cloth.bends:
        mesh = matter.cloth.mesh
        for row, link, others, links in _held(link_of, mesh.hinges):
            weight = torch.as_tensor(mesh.hinge_weight[row] * (mesh.hinge_slopes[row] * others).sum(1))
            k = 0.5 * weight * numbers["bending"][..., torch.as_tensor(row)]
            c = weight * numbers["bending_damping"][..., torch.as_tensor(row)] if matter.cloth.damped else 0.0 * k
            yield from _at_others(mesh.hinges[row], link, others, links * k, links * c)
    if matter.surface is not None:
        own = np.intersect1d(matter.surface.vertex, matter.pins.particle)
        k_e, k_d, k_f = (4.0 * numbers[f"particle_{n}"][..., torch.as_tensor(own)] for n in ("k_e", "k_d", "k_f"))
        yield _Grip(link_of[own], own, 2.0 * k_e, torch.maximum(k_d, k_f))


def _held(link_of: np.ndarray, corners: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, Tensor]]:
    """For each corner: elements where it is first on its link, the link, corners that are not on it, count of links."""
    links = link_of[corners]
    for a in range(corners.shape[1]):
        first = (links[:, a] > 0) & (links[:, :a] != links[:, a : a + 1]).all(1)
        others = links != links[:, a : a + 1]
        row = np.flatnonzero(first & others.any(1))
        if len(row):
            counts = [float(len(set(one.tolist()) - {0})) for one in links[row]]
            yield row, links[row, a], others[row], torch.tensor(counts, dtype=torch.float64)


def _at_others(corners: np.ndarray, link: np.ndarray, others: np.ndarray, k: Tensor, c: Tensor) -> Iterator[_Grip]:
    """The grip of a link on each of the corners that are not on it."""
    for b in range(corners.shape[1]):
        on = np.flatnonzero(others[:, b])
        if len(on):
            at = torch.as_tensor(on)
            yield _Grip(link[on], corners[on, b].astype(np.int64), k[..., at], c[..., at])


def _link_jacobians(tree: TreeArrays, R: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Jacobians of each link's angular velocity and of the velocity of its origin, shapes (links, 3, nv)."""
    turning, shifting = (np.zeros((len(p), 3, tree.nv)) for _ in range(2))
    for i, up in enumerate(tree.parent):
        d, link = tree.v_start[i], i + 1
        turning[link] = turning[up]
        shifting[link] = shifting[up] + np.cross(turning[up], p[link] - p[up], axisa=0, axisb=0, axisc=0)
        own = tree.types[i].motions(tree.axis[i] / (np.linalg.norm(tree.axis[i]) or 1.0))
        turning[link][:, d : d + len(own)] += R[link] @ own[:, :3].T
        shifting[link][:, d : d + len(own)] += R[link] @ own[:, 3:].T
    return turning, shifting


def _mass_matrix(
    tree: TreeArrays,
    R: np.ndarray,
    p: np.ndarray,
    turning: np.ndarray,
    shifting: np.ndarray,
    numbers: dict[str, Tensor],
) -> Tensor:
    """The mass matrix of all trees in the initial pose, with the inertia of drives, shape (*batch, nv, nv)."""
    link = tree.body_link
    R_WB = torch.as_tensor(R[link] @ tree.body_rotation)
    origin = torch.as_tensor(np.einsum("bij,bj->bi", R[link], tree.body_offset))
    arm = origin + torch.einsum("bij,...bj->...bi", R_WB, numbers["com"])
    w, v = torch.as_tensor(turning[link]), torch.as_tensor(shifting[link])
    w_all = w.expand(*arm.shape[:-1], 3, w.shape[-1])
    v = v + torch.linalg.cross(w_all, arm.unsqueeze(-1).expand_as(w_all), dim=-2)
    xx, xy, xz, yy, yz, zz = numbers["inertia"].unbind(-1)
    rows = [torch.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))]
    inertia = R_WB @ torch.stack(rows, -2) @ R_WB.transpose(-1, -2)
    M = torch.einsum("...b,...bix,...biy->...xy", numbers["mass"], v, v)
    M = M + torch.einsum("bix,...bij,bjy->...xy", w, inertia, w) + torch.diag_embed(numbers["armature"])
    mean = M.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return M + TINY * mean * torch.eye(tree.nv, dtype=M.dtype)
