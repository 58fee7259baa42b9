"""Derived parameters of soft matter, from learnable parameters."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.matter import OF_SKIN, MatterArrays


def derived_numbers(matter: MatterArrays, arrays: dict[str, Tensor], changed: Collection[str]) -> dict[str, Tensor]:
    """Derived parameters: inverse masses, parameters per energy, and skin parameters per particle.

    Args:
        matter: Arrays of soft matter.
        arrays: Parameter arrays, as in `Model.resolve`.
        changed: Names of changed arrays: computes only what depends on them.

    Gradients:
        To all parameter arrays.
    """
    if not len(matter):
        return {}
    found: dict[str, Tensor] = {}
    if "point_mass" in changed or "density" in changed:
        found["inv_mass"] = _inverse_masses(matter, arrays)
    for name in ("mu", "lam", "viscosity", "activation"):
        if name in changed:
            found |= matter.of_elements(name, arrays[name])
    skins = [name for name in OF_SKIN if f"skin_{name}" in changed]
    if skins:
        skinned = [matter.names.index(name) for name in matter.owners["skin_radius"]]
        row = np.searchsorted(skinned, matter.owner) % len(skinned)  # per particle; arbitrary without a skin
        for name in skins:
            found[f"particle_{name}"] = arrays[f"skin_{name}"][..., torch.as_tensor(row)]
    return found


def _inverse_masses(matter: MatterArrays, arrays: dict[str, Tensor]) -> Tensor:
    """Inverse mass of every particle [1/kg], zero for fixed ones."""
    mass = arrays["point_mass"]
    for solid in matter.solids:
        part = slice(solid.first, solid.first + len(solid.mesh.tets))
        weight = arrays["density"][..., part] * torch.as_tensor(0.25 * solid.mesh.volume, dtype=mass.dtype)
        mass = _lumped(mass, weight, solid.mesh.tets)
    if matter.cloth is not None:
        mesh = matter.cloth.mesh
        part = slice(matter.cloth.first, matter.cloth.first + len(mesh.triangles))
        weight = arrays["density"][..., part] * torch.as_tensor(mesh.area / 3.0, dtype=mass.dtype)
        mass = _lumped(mass, weight, mesh.triangles)
    held = torch.as_tensor(matter.held, dtype=torch.bool)
    light = ~(held | (mass.detach() > 0)).reshape(-1, len(matter)).all(0)
    if light.any():
        k = int(light.nonzero()[0])
        name, least = matter.names[matter.owner[k]], float(mass.detach()[..., k].min())
        what = f"the mass of vertex {k - matter.particles(name).start} of {name!r} is not positive"
        raise InputError(what, got=f"{least:.3g} kg", fix="a larger density or point_mass")
    return torch.where(held, 0.0, 1.0 / mass)


def _lumped(mass: Tensor, weight: Tensor, corners: np.ndarray) -> Tensor:
    """Add the weight of each element to all its corners."""
    batch = np.broadcast_shapes(mass.shape[:-1], weight.shape[:-1])
    mass, weight = mass.expand(*batch, -1), weight.expand(*batch, -1)
    for k in range(corners.shape[1]):
        mass = mass.index_add(-1, torch.as_tensor(corners[:, k].astype(np.int64)), weight)
    return mass
