"""Tendons."""

from __future__ import annotations

import numpy as np

from kinema.scene.io.mjmodel.compiled import Compiled


def refuse_tendons(c: Compiled) -> None:
    """Refuse tendons that exert forces; note the others."""
    m = c.m
    for t in range(m.ntendon):
        name = c.mj.mj_id2name(m, c.mj.mjtObj.mjOBJ_TENDON, t) or str(t)
        acts = [word for word in ("limited", "actfrclimited") if getattr(m, f"tendon_{word}")[t]]
        for word in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature"):
            if np.any(getattr(m, f"tendon_{word}")[t]):
                acts.append(word)
        if acts:
            what, where = f"tendon {name!r} exerts forces", f"tendon {name!r}"
            c.refuse("tendons", what, where, got=", ".join(acts), expected="a tendon that is only measured")
        else:
            c.notes.append(f"left out: tendon {name!r}, which exerts no force")
