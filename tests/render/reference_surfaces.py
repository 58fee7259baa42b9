"""Faces, their silhouettes and their shading in plain torch: what `reference.py` draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kinema.rendering.camera import Camera
from kinema.rendering.surface import Lights, Surface

SMALLEST_AREA = 1e-10  # twice the area on the screen below which a face is not drawn


class Faces:
    """Corners of all faces of all surfaces: (faces, 3, ...) in the world, on the screen, and what is interpolated."""

    def __init__(self, surfaces: Sequence[Surface], camera: Camera) -> None:
        self.surfaces, parts, first = surfaces, [], 0
        for k, s in enumerate(surfaces):
            f, x = s.faces.long(), s.vertices.double()
            p = x[f]
            cross = torch.linalg.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])[:, None].expand(-1, 3, 3)
            sums = torch.zeros_like(x).index_add(0, f.reshape(-1), cross.reshape(-1, 3))
            uv = x[:, :2] * 0.0 if s.uv is None else s.uv.double()
            colour = s.material.colour.double().expand(len(x), 3)
            owner = torch.full((len(f),), k)
            parts.append((p, normalize(sums[f] if s.smooth else cross, dim=-1), uv[f], colour[f], owner, f + first))
            first += len(x)
        self.world, self.normal, self.uv, self.colour, self.owner, self.corner = map(
            torch.cat, zip(*parts, strict=True)
        )
        R, t = camera.R.double(), camera.t.double()
        view = self.world @ R.T + t
        self.eye = -R.T @ t
        z = view[..., 2]
        size = torch.tensor([camera.width, camera.height]).double()
        ahead = torch.where(z >= camera.near, z, 1.0)[..., None]  # the others are not drawn
        pixel = camera.focal.double() * view[..., :2] / ahead + camera.centre.double()
        self.screen = torch.cat([(pixel - size / 2) * 2 / size.min(), ahead], dim=-1)
        area = cross2(*(self.screen[:, i, :2] - self.screen[:, 0, :2] for i in (1, 2)))
        self.drawn = (z >= camera.near).all(-1) & (area.abs() >= SMALLEST_AREA)
        self.front = self.drawn & (area < 0)  # y points down
        two_sided = torch.tensor([s.two_sided for s in surfaces])[self.owner]
        self.solid = self.front | (self.drawn & two_sided)  # what can be foreground
        self.turn = torch.where(two_sided & (area > 0), -1.0, 1.0).double()

    def silhouette(self) -> list[tuple[int, int]]:
        """Edges (face, first corner) of solid faces across which there is no face that looks the same way."""
        sides: dict[frozenset[int], list[int]] = {}
        for f, corners in enumerate(self.corner.tolist()):
            for i in range(3):
                sides.setdefault(frozenset((corners[i], corners[(i + 1) % 3])), []).append(f)
        found = []
        for f in self.solid.nonzero().flatten().tolist():
            for i in range(3):
                a, b = self.corner[f, i].item(), self.corner[f, (i + 1) % 3].item()
                others = [o for o in sides[frozenset((a, b))] if o != f and self.drawn[o]]
                same = any(self.front[o] == self.front[f] for o in others)
                # A fold of a two-sided surface is one edge: that of its front face.
                folded = bool(others) and not self.front[f] and any(self.solid[o] for o in others)
                if not same and not folded:
                    found.append((f, i))
        return found


def cross2(a: Tensor, b: Tensor) -> Tensor:
    """a_x b_y - a_y b_x."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def texel(texture: Tensor, uv: Tensor) -> Tensor:
    """Bilinear, texel centres at (i + 1/2) / size, border clamped, v upwards."""
    rows, columns = texture.shape[:2]
    x = (uv[..., 0] * columns - 0.5).clamp(0.0, columns - 1.0)
    y = ((1.0 - uv[..., 1]) * rows - 0.5).clamp(0.0, rows - 1.0)
    i, j = x.detach().floor().long(), y.detach().floor().long()
    k, l = (i + 1).clamp(max=columns - 1), (j + 1).clamp(max=rows - 1)
    fx, fy = (x - i)[..., None], (y - j)[..., None]
    t = texture.double()
    return (t[j, i] * (1 - fx) + t[j, k] * fx) * (1 - fy) + (t[l, i] * (1 - fx) + t[l, k] * fx) * fy


def shade(faces: Faces, lights: Lights, f: Tensor, w: Tensor, perspective: bool = True) -> tuple[Tensor, Tensor]:
    """Colour and normal (pixels, 3) at coordinates w (pixels, 3), barycentric on the screen, of faces f (pixels,)."""
    b = w / faces.screen[f, :, 2] if perspective else w
    b = (b / b.sum(-1, keepdim=True))[..., None]
    p, n, uv, base = ((b * a[f]).sum(-2) for a in (faces.world, faces.normal, faces.uv, faces.colour))
    n = normalize(n, dim=-1) * faces.turn[f, None]
    v = normalize(faces.eye - p, dim=-1)
    rays = [(-d.double().expand_as(p), c) for d, c in zip(lights.directions, lights.direction_colours, strict=True)]
    rays += [(x.double() - p, c) for x, c in zip(lights.points, lights.point_colours, strict=True)]
    result = torch.zeros_like(base)
    for k, s in enumerate(faces.surfaces):
        m = s.material
        colour = base if m.texture is None else base * texel(m.texture, uv)
        if m.lit:
            diffuse, mirrored = lights.ambient.double().expand_as(p), torch.zeros_like(p)
            for direction, light in rays:
                l = normalize(direction, dim=-1)
                facing = (n * l).sum(-1, keepdim=True)
                glance = ((2 * facing * n - l) * v).sum(-1, keepdim=True)
                bright = glance > 0
                diffuse = diffuse + m.diffuse * facing.clamp(min=0.0) * light.double()
                shine = torch.where(bright, torch.where(bright, glance, 1.0) ** m.shininess, 0.0)
                mirrored = mirrored + shine * light.double()
            colour = colour * diffuse + m.specular * mirrored
        result = torch.where(faces.owner[f, None] == k, colour, result)
    return result, n
