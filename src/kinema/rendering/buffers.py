"""Depth and normals of what is seen: numbers of vertices are drawn in place of colours, interpolated in space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.draw import render_surfaces
from kinema.rendering.surface import Material, Surface

SHARP = 1e-12  # squared width of outlines: nothing is seen beside a face

MOST_KEPT = 64

_SINGLE: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # by id of faces, which are kept so that it stays theirs


def depth_of(surfaces: Sequence[Surface], camera: Camera, threads: int | None = None) -> Tensor:
    """Depth along the view of what is seen in the middle of pixels [m], shape (*batch, height, width); 0 for nothing.

    Gradients:
        Exact to vertices and camera within faces; where another face becomes the nearest, the image jumps.
    """
    painted = [_painted(one, camera.to_screen(one.vertices)[..., 2:].expand_as(one.vertices)) for one in surfaces]
    return _draw(painted, camera, threads)[..., 0]


def normals_of(surfaces: Sequence[Surface], camera: Camera, threads: int | None = None) -> Tensor:
    """Unit normals in the world of what is seen in the middle of pixels, (*batch, height, width, 3); 0 for nothing.

    If any surface is two-sided, normals that point away from the camera are turned round.

    Gradients:
        As of `depth_of`.
    """
    painted = []
    for one in surfaces:
        whole = one if one.smooth else _single(one)
        painted.append(_painted(whole, vertex_normals_of(whole)))
    found = torch.nn.functional.normalize(_draw(painted, camera, threads), dim=-1)
    if not any(one.two_sided for one in surfaces):
        return found
    away = (found * _rays(camera).to(found.dtype)).sum(-1, keepdim=True) > 0
    return torch.where(away, -found, found)


def vertex_normals_of(surface: Surface) -> Tensor:
    """Means of the normals of the faces at each vertex, weighted by area, unit; shape (*batch, vertices, 3)."""
    faces = surface.faces.long()
    a, b, c = (surface.vertices.index_select(-2, faces[:, k]) for k in range(3))
    twice = torch.linalg.cross(b - a, c - a)
    sums = torch.zeros_like(surface.vertices)
    for k in range(3):
        sums = sums.index_add(-2, faces[:, k], twice)
    return torch.nn.functional.normalize(sums, dim=-1)


def _painted(surface: Surface, values: Tensor) -> Surface:
    return replace(surface, material=Material(values, lit=False), uv=None)


def _draw(painted: Sequence[Surface], camera: Camera, threads: int | None) -> Tensor:
    found = render_surfaces(painted, camera, sigma=SHARP, edges=False, outputs=("rgb", "alpha"), threads=threads)
    return torch.where(found["alpha"].unsqueeze(-1) < 1.0, 0.0, found["rgb"])  # a pixel may lie just beside an edge


def _single(surface: Surface) -> Surface:
    """The surface with vertices of its own for every face; their numbers stay the same from call to call."""
    faces = surface.faces
    if id(faces) not in _SINGLE:
        while len(_SINGLE) >= MOST_KEPT:
            _SINGLE.pop(next(iter(_SINGLE)))
        own = torch.arange(faces.numel(), dtype=torch.int32).reshape(-1, 3)
        _SINGLE[id(faces)] = (faces, faces.long().flatten(), own)
    _, corners, own = _SINGLE[id(faces)]
    return replace(surface, vertices=surface.vertices.index_select(-2, corners), faces=own, points=None)


def _rays(camera: Camera) -> Tensor:
    """Directions in which pixels look, in the world, shape (*batch, height, width, 3)."""
    u = torch.arange(camera.width, dtype=camera.focal.dtype) + 0.5
    v = torch.arange(camera.height, dtype=camera.focal.dtype) + 0.5
    x = (u - camera.centre[..., 0, None]) / camera.focal[..., 0, None]
    y = (v - camera.centre[..., 1, None]) / camera.focal[..., 1, None]
    x, y = torch.broadcast_tensors(x.unsqueeze(-2), y.unsqueeze(-1))
    return torch.stack([x, y, torch.ones_like(x)], -1) @ camera.R.unsqueeze(-3)
