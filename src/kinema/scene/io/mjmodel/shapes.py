"""Geoms, with their meshes, height fields and colours."""

from __future__ import annotations

import numpy as np

from kinema.scene import description as kd
from kinema.scene.io.mjmodel.compiled import Compiled, pose_of
from kinema.scene.io.mjmodel.softness import surface_of
from kinema.scene.shape_kinds import SHAPE_KINDS

SHAPES = {one.mjcf: one for one in SHAPE_KINDS.values() if one.mjcf}


def shape_of(c: Compiled, g: int, group: int, mask: int) -> kd.Shape | None:
    """The shape of a geom, with its collision group and mask; None if it is left out."""
    m, element, collides = c.m, c.element("geom", g), mask != 0
    kind = c.word("Geom", m.geom_type[g])
    if kind not in SHAPES:
        what = f"{element} is of type {kind}"
        if collides:
            c.refuse("shapes", what + " and collides", element, got=kind, expected=", ".join(SHAPES))
        else:
            c.notes.append(f"left out: {what}, which does not collide")
        return None
    made = SHAPES[kind]
    mesh = _mesh(c, m.geom_dataid[g]) if kind == "mesh" else None
    mesh = _terrain(c, m.geom_dataid[g]) if kind == "hfield" else mesh
    # A material sets the colour of geoms that have MuJoCo's default colour.
    rgba, plain = np.asarray(m.geom_rgba[g]), tuple(m.geom_rgba[g]) == (0.5, 0.5, 0.5, 1.0)
    if m.geom_matid[g] >= 0 and plain:
        rgba, plain = m.mat_rgba[m.geom_matid[g]], False
    red, green, blue, alpha = (round(float(c), 6) for c in rgba)
    return kd.Shape(
        made.word,
        tuple(float(s) for s in m.geom_size[g, : len(made.sizes)]),
        pose_of(m.geom_pos[g], m.geom_quat[g]),
        name=c.geom_names[g],
        mesh=mesh,
        collides=collides,
        visible=bool(alpha > 0 and m.geom_group[g] <= 2),  # what MuJoCo's viewer shows
        friction=float(m.geom_friction[g, 0]),
        group=group,
        mask=mask,
        colour=None if plain else (red, green, blue, alpha),
        surface=surface_of(c, g) if collides else None,
    )


def _mesh(c: Compiled, i: int) -> kd.Mesh:
    if ("mesh", i) not in c.meshes:
        m = c.m
        first, count = int(m.mesh_vertadr[i]), int(m.mesh_vertnum[i])
        vertices = np.array(m.mesh_vert[first : first + count], dtype=np.float64)
        first, count = int(m.mesh_faceadr[i]), int(m.mesh_facenum[i])
        c.meshes["mesh", i] = kd.Mesh(vertices, np.array(m.mesh_face[first : first + count], dtype=np.int32))
    return c.meshes["mesh", i]


def _terrain(c: Compiled, i: int) -> kd.Mesh:
    """A height field as two triangles per cell, split along MuJoCo's diagonal, without the base."""
    if ("hfield", i) not in c.meshes:
        m = c.m
        rows, columns, first = int(m.hfield_nrow[i]), int(m.hfield_ncol[i]), int(m.hfield_adr[i])
        x_half, y_half, height, _ = (float(s) for s in m.hfield_size[i])
        heights = np.array(m.hfield_data[first : first + rows * columns], dtype=np.float64) * height
        y, x = np.meshgrid(np.linspace(-y_half, y_half, rows), np.linspace(-x_half, x_half, columns), indexing="ij")
        a = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()  # corner of least x and y
        beside, across, above = a + 1, a + columns + 1, a + columns
        faces = np.stack([np.stack([a, beside, across], 1), np.stack([a, across, above], 1)], 1).reshape(-1, 3)
        c.meshes["hfield", i] = kd.Mesh(np.stack([x.ravel(), y.ravel(), heights], 1), faces.astype(np.int32))
    return c.meshes["hfield", i]
