"""The images of the renderer in plain torch, as they are defined: float64, every pixel with every face, one image.

No tiles, no kernels, no batches: this file is to be read, and to judge the kernels by, values and gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tests.render.reference_surfaces import Faces, cross2, shade
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.surface import Lights, Surface

CUT = math.log(1e4 - 1)  # d^2 / sigma beyond which an edge is not felt
BACKGROUND_DEPTH = 1e-3  # eps of SoftRas
NOWHERE = 1e30


def pixel_centres(camera: Camera) -> Tensor:
    """(pixels, 2) on the screen, row by row."""
    size = (camera.width, camera.height)
    x, y = ((2 * torch.arange(n).double() + 1 - n) / min(size) for n in size)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 2)


def barycentric(at: Tensor, corners: Tensor) -> Tensor:
    """Of points (pixels, 2) in a face (3, 3) on the screen: (pixels, 3)."""
    a, b, c = (corners[i, :2] - at for i in range(3))
    return torch.stack([cross2(b, c), cross2(c, a), cross2(a, b)], dim=-1) / cross2(b - a, c - a)[:, None]


def nearest(at: Tensor, corners: Tensor, edge: int) -> tuple[Tensor, Tensor]:
    """Squared distance (pixels,) to an edge (segment), and barycentric coordinates (pixels, 3) of its nearest point."""
    a, b = corners[edge, :2] - at, corners[(edge + 1) % 3, :2] - at
    t = (-(a * (b - a)).sum(-1) / (b - a).square().sum(-1)).clamp(0.0, 1.0)
    w = [torch.zeros_like(t)] * 3
    w[edge], w[(edge + 1) % 3] = 1.0 - t, t
    return (a + (b - a) * t[:, None]).square().sum(-1), torch.stack(w, dim=-1)


def dibr(
    surfaces: Sequence[Surface],
    camera: Camera,
    lights: Lights,
    background: Tensor,
    *,
    sigma: float | Tensor = 1.0 / 7000.0,
    edges: bool = True,
    perspective: bool = True,
) -> dict[str, Tensor]:
    """rgb (height, width, 3), alpha, depth, face (height, width) and normal (height, width, 3)."""
    faces, at = Faces(surfaces, camera), pixel_centres(camera)
    none = torch.full((len(at),), NOWHERE, dtype=at.dtype)
    face, depth, inner = none.long() * 0 - 1, none, torch.ones_like(at[:, :1]).expand(-1, 3)
    clear, distance, outer, outer_face = none * 0 + 1, none, inner, torch.zeros_like(face)
    for f in faces.drawn.nonzero().flatten().tolist():
        corners = faces.screen[f]
        w = barycentric(at, corners)
        z = w.sum(-1) / (w / corners[:, 2]).sum(-1)
        better = (w >= 0).all(-1) & (z < depth) & faces.solid[f]
        face, depth = torch.where(better, f, face), torch.where(better, z, depth)
        inner = torch.where(better[:, None], w, inner)
        tries = [nearest(at, corners, i) for i in range(3)]
        d2, which = torch.stack([d for d, _ in tries]).min(0)
        w = torch.stack([w for _, w in tries])[which, torch.arange(len(at))]
        felt = d2 < CUT * sigma
        clear = clear * torch.where(felt, 1 - torch.exp(-d2 / sigma), 1.0)
        rank = d2 if faces.solid[f] else d2 + 1e6  # any other face only if there is none of these
        closer = felt & (rank < distance)
        distance, outer = torch.where(closer, rank, distance), torch.where(closer[:, None], w, outer)
        outer_face = torch.where(closer, f, outer_face)
    covered = face >= 0
    hidden, distance, over, over_face = none * 0 + 1, none, inner, torch.zeros_like(face)
    for f, i in faces.silhouette() if edges else []:
        corners = faces.screen[f]
        d2, w = nearest(at, corners, i)
        z = 1 / (w / corners[:, 2]).sum(-1)
        beyond = barycentric(at, corners)[:, (i + 2) % 3] < 0
        felt = beyond & (d2 < CUT * sigma) & (z < depth)
        hidden = hidden * torch.where(felt, 1 - torch.exp(-d2 / sigma), 1.0)
        closer = felt & (d2 < distance)
        distance, over = torch.where(closer, d2, distance), torch.where(closer[:, None], w, over)
        over_face = torch.where(closer, f, over_face)
    (front, n), (around, _), (above, _) = (
        shade(faces, lights, f.clamp(min=0), w, perspective)
        for f, w in ((face, inner), (outer_face, outer), (over_face, over))
    )
    alpha, hidden = torch.where(covered, 1.0, 1 - clear), hidden[:, None]
    outside = alpha[:, None] * around + clear[:, None] * background.double()
    rgb = torch.where(covered[:, None], (1 - hidden) * above + hidden * front, outside)
    found = {"rgb": rgb, "alpha": alpha, "depth": depth * covered, "face": face, "normal": n * covered[:, None]}
    return {k: a.reshape(camera.height, camera.width, *a.shape[1:]) for k, a in found.items()}


def soft(
    surfaces: Sequence[Surface],
    camera: Camera,
    lights: Lights,
    background: Tensor,
    *,
    sigma: float | Tensor = 1e-5,
    gamma: float | Tensor = 1e-4,
    near: float | Tensor = 1.0,
    far: float | Tensor = 100.0,
) -> dict[str, Tensor]:
    """SoftRas: rgb (height, width, 3) and alpha (height, width)."""
    faces, at = Faces(surfaces, camera), pixel_centres(camera)
    coverages = [torch.ones_like(at[:, 0])]
    scores = [BACKGROUND_DEPTH * coverages[0]]
    colours = [background.double().expand(len(at), 3)]
    for f in faces.drawn.nonzero().flatten().tolist():
        corners = faces.screen[f]
        w = barycentric(at, corners)
        d2 = torch.stack([nearest(at, corners, i)[0] for i in range(3)]).amin(0)
        inside = (w >= 0).all(-1)
        coverage = torch.sigmoid(torch.where(inside, d2, -d2) / sigma)
        coverages.append(torch.where(inside | (d2 < CUT * sigma), coverage, 0.0))
        a = w.clamp(min=0.0)
        z = a.sum(-1) / (a / corners[:, 2]).sum(-1)
        scores.append((far - z) / (far - near))
        colours.append(shade(faces, lights, torch.full((len(at),), f), a)[0])
    coverage, score = torch.stack(coverages), torch.stack(scores)
    top = torch.where(coverage > 0, score, -math.inf).amax(0).detach()
    weight = coverage * torch.exp(torch.where(coverage > 0, score - top, 0.0) / gamma)
    rgb = (weight[..., None] * torch.stack(colours)).sum(0) / weight.sum(0)[:, None]
    alpha = 1 - (1 - coverage[1:]).prod(0)
    return {"rgb": rgb.reshape(camera.height, camera.width, 3), "alpha": alpha.reshape(camera.height, camera.width)}
