"""solref, solimp and contact parameters, for the contact law "convex"; clipped as MuJoCo clips them."""

from __future__ import annotations

from typing import Any

from kinema.errors import ModelError
from kinema.scene.io.mjmodel.compiled import Compiled, vector_of
from kinema.scene.softness import ContactPair, ContactSurface, FileOptions, Softness


def softness_of(c: Compiled, element: str, solref: Any, solimp: Any) -> Softness:
    """The softness of a constraint; where solref mixes two formats, MuJoCo's default, with a note."""
    time, damping = (float(x) for x in solref)
    if (time > 0) != (damping > 0):
        c.notes.append(f"{element}: its solref mixes two formats; the default is used, as in MuJoCo")
        time, damping = Softness().solref
    near, far, width, midpoint, power = (float(x) for x in solimp)
    near, far, midpoint = (min(max(x, 0.0), 1.0) for x in (near, far, midpoint))
    return Softness((time, damping), (near, far, max(width, 0.0), midpoint, max(power, 1.0)))


def surface_of(c: Compiled, g: int) -> ContactSurface:
    """The surface of a geom."""
    m = c.m
    return ContactSurface(
        softness_of(c, c.element("geom", g), m.geom_solref[g], m.geom_solimp[g]),
        condim=int(m.geom_condim[g]),
        torsional=float(m.geom_friction[g, 1]),
        rolling=float(m.geom_friction[g, 2]),
        solmix=float(m.geom_solmix[g]),
        priority=int(m.geom_priority[g]),
        margin=float(m.geom_margin[g]),
    )


def contact_pairs(c: Compiled, names: dict[int, str]) -> tuple[ContactPair, ...]:
    """Contact parameters of pairs of geoms; `names` are the colliding shapes by geom, "body/shape"."""
    m, found = c.m, []
    for p in range(m.npair):
        ends = int(m.pair_geom1[p]), int(m.pair_geom2[p])
        if not all(g in names for g in ends):
            continue
        one, two, spin, roll, turn = (float(x) for x in m.pair_friction[p])
        sliding, damping = (float(x) for x in m.pair_solreffriction[p])
        element = f"the contact pair of {c.element('geom', ends[0])} and {c.element('geom', ends[1])}"
        if (sliding > 0) != (damping > 0):
            c.notes.append(f"{element}: its solreffriction mixes two formats and is left out, as in MuJoCo")
            sliding, damping = 0.0, 0.0
        found.append(
            ContactPair(
                names[ends[0]],
                names[ends[1]],
                (one, two, spin, roll, turn),
                softness_of(c, element, m.pair_solref[p], m.pair_solimp[p]),
                (sliding, damping),
                int(m.pair_dim[p]),
                float(m.pair_margin[p]),
            )
        )
    return tuple(found)


def options_of(c: Compiled) -> FileOptions:
    """The options of the simulation; notes those without an equal here."""
    opt = c.m.opt
    if opt.noslip_iterations > 0:
        c.notes.append("left out: the noslip solver")
    for flag in ("refsafe", "eulerdamp"):
        if c.disabled(flag):
            c.notes.append(f"left out: the disabled flag {flag!r}")
    if not opt.timestep > 0:
        what = "the time step is not positive"
        raise ModelError(what, where=f"{c.source} <option>", got=float(opt.timestep), fix='write timestep="0.002"')
    gravity = (0.0, 0.0, 0.0) if c.disabled("gravity") else vector_of(opt.gravity)
    cone, integrator = c.word("Cone", opt.cone), c.word("Integrator", opt.integrator)
    return FileOptions(float(opt.timestep), integrator, gravity, cone == "elliptic", float(opt.impratio))
