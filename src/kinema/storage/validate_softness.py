"""Validation of the softness of constraints from untrusted files."""

from __future__ import annotations

import numpy as np

from kinema.model.model import Model
from kinema.model.softness import SoftArrays
from kinema.scene.softness import CONDIMS
from kinema.storage.rules import require, require_reals


def check_softness(model: Model, soft: SoftArrays) -> None:
    """Raise ModelError unless shapes, dtypes and values could come from `compile`."""
    rows, candidates = model.constraints, model.candidates.names
    owners = {"": candidates, "limit_": rows.limit_names, "dry_": rows.rubbing_names}
    owners |= {"mimic_": rows.follower_names, "loop_": rows.loop_names}
    shapes: dict[str, tuple[int, ...]] = {}
    for prefix, names in owners.items():
        shapes |= {f"{prefix}solref": (len(names), 2), f"{prefix}solimp": (len(names), 5)}
    count = len(candidates)
    shapes |= {"friction_solref": (count, 2), "torsional": (count,), "rolling": (count,)}
    require(set(soft.numbers) == set(shapes) == set(soft.owners), "names of softness")
    for name, shape in shapes.items():
        require_reals(name, soft.numbers[name], shape)
        require(len(soft.owners[name]) == shape[0], f"owners of {name}")
    require(soft.condim.dtype == np.int32 and soft.condim.shape == (count,), "condim")
    require(np.isin(soft.condim, CONDIMS).all(), "condim")
    loops = len(rows.loop_names)
    arrays: dict[str, tuple[int, ...]] = {"margin": (count,), "ratio": (count, 2), "weight": (count, 2)}
    arrays |= {"along": (count, 3), "loop_weight": (loops, 2), "torque_scale": (loops,)}
    arrays |= {"dry_weight": (len(rows.rubbing_names),), "mimic_weight": (len(rows.follower_names),)}
    arrays |= dict.fromkeys(("limit_weight", "limit_margin"), (len(rows.limit_names),))
    for name, shape in arrays.items():
        require_reals(name, getattr(soft, name), shape)
