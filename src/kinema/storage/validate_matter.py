"""Validation of arrays of soft matter: rebuilds meshes from their corners and compares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from kinema.errors import InputError, ModelError
from kinema.model.matter import OF_AIR, OF_ELEMENT, OF_HINGE, OF_SKIN, OF_SPRING, MatterArrays, surface_of
from kinema.model.model import Model
from kinema.model.tetmesh import tet_mesh
from kinema.model.trimesh import tri_mesh
from kinema.storage.rules import require, require_indices, require_reals


def check_matter(model: Model) -> None:
    """Raise ModelError unless all arrays of soft matter could come from `compile`."""
    matter = model.matter
    count, things = len(matter.x), len(matter.names)
    for name in ("x", "v"):
        require_reals(name, getattr(matter, name), (count, 3))
    for name, below in (("owner", max(things, 1)), ("held", 2), ("touching", 2), ("square", 2), ("averaged", 2)):
        require_indices(name, getattr(matter, name), (count,), below)
    require((np.diff(matter.owner) >= 0).all() and len({*matter.owner.tolist()}) == things, "owner")
    first = 0
    for solid in matter.solids:
        _check_mesh(solid.mesh, tet_mesh, solid.mesh.tets, count)
        require(solid.first == first, "first")
        first += len(solid.mesh.tets)
    if matter.cloth is not None:
        _check_mesh(matter.cloth.mesh, tri_mesh, matter.cloth.mesh.triangles, count)
        require(matter.cloth.first == first, "first")
    require_indices("ends", matter.ends, (len(matter.ends), 2), max(count, 1))
    pins = matter.pins
    require_indices("pins", pins.particle, (len(pins.particle),), max(count, 1))
    require_indices("pins", pins.link, (len(pins.particle),), len(model.joints) + 1)
    require((pins.link > 0).all() and len({*pins.particle.tolist()}) == len(pins.particle), "pins")
    require_reals("pins", pins.place, (len(pins.particle), 3))
    _check_numbers(matter)
    if matter.surface is not None:
        _check_surface(matter)


def _check_surface(matter: MatterArrays) -> None:
    """The contact surface equals the one rebuilt from meshes and skins."""
    surface = matter.surface
    assert surface is not None
    require_reals("surface", surface.rest, (len(matter), 3))
    require(isinstance(surface.slots, int) and surface.slots > 0 and "skin_thickness" in matter.numbers, "surface")
    again = surface_of(matter, surface.rest, surface.slots)
    require(again is not None, "surface")
    for field in fields(surface):
        one, other = (np.asarray(getattr(s, field.name)) for s in (surface, again))
        require(one.dtype == other.dtype and np.array_equal(one, other), f"surface.{field.name}")


def _check_mesh(mesh: Any, make: Callable[..., Any], corners: np.ndarray, count: int) -> None:
    """The mesh equals the one rebuilt from its corners."""
    require_reals("vertices", mesh.vertices, (count, 3))
    require(corners.dtype == np.int32, "corners")
    try:
        again = make(mesh.vertices, corners, whole=False)
    except InputError as error:
        raise ModelError(f"the arrays of the model are inconsistent: {error}") from None
    for field in fields(mesh):
        require(np.array_equal(getattr(mesh, field.name), getattr(again, field.name)), field.name)


def _check_numbers(matter: MatterArrays) -> None:
    """All parameters that a step needs are present, with the right shapes."""
    wanted: dict[str, tuple[int, ...]] = {}
    if len(matter):
        wanted["point_mass"] = (len(matter),)
        if matter.touching.any() or any(f"skin_{n}" in matter.numbers for n in OF_SKIN):
            skins = len(matter.numbers.get("skin_radius", ()))
            wanted |= {f"skin_{name}": (skins,) for name in OF_SKIN}
            require(skins >= len({*matter.owner[matter.touching > 0].tolist()}), "skins")
    viscous = any(one.viscous for one in matter.solids) or (matter.cloth is not None and matter.cloth.viscous)
    if matter.elements:
        wanted |= {n: (matter.elements,) for n in OF_ELEMENT if n != "viscosity" or viscous}
    if len(matter.ends):
        wanted |= {f"spring_{name}": (len(matter.ends),) for name in OF_SPRING}
    if matter.cloth is not None:
        hinges, triangles = len(matter.cloth.mesh.hinges), len(matter.cloth.mesh.triangles)
        if matter.cloth.bends and hinges:
            wanted |= {n: (hinges,) for n in OF_HINGE if n != "bending_damping" or matter.cloth.damped}
        if matter.cloth.airy:
            wanted |= {n: (triangles,) for n in OF_AIR} | {"wind": (3,)}
    require(set(matter.numbers) == set(wanted) == set(matter.owners), "numbers of soft matter")
    for name, shape in wanted.items():
        require_reals(name, matter.numbers[name], shape)
        require(len(matter.owners[name]) == (0 if name == "wind" else shape[0]), name)
        require(set(matter.owners[name]) <= set(matter.names), name)
