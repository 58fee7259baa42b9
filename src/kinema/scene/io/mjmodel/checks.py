"""What a robot cannot express: refused, or left out with a note."""

from __future__ import annotations

import numpy as np

from kinema.errors import ModelError
from kinema.scene.io.mjmodel.compiled import Compiled

# Arrays of mjModel that the reader uses.
NUMBERS = [
    *("body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_inertia", "jnt_pos", "jnt_axis"),
    *("jnt_range", "jnt_stiffness", "jnt_actfrcrange", "dof_armature", "dof_damping", "dof_frictionloss"),
    *("geom_pos", "geom_quat", "geom_size", "geom_friction", "geom_rgba", "mat_rgba", "mesh_vert", "hfield_data"),
    *("actuator_gainprm", "actuator_biasprm", "actuator_gear", "actuator_ctrlrange", "actuator_forcerange"),
    *("actuator_armature", "actuator_damping", "actuator_dynprm", "actuator_actrange", "actuator_lengthrange"),
    *("tendon_stiffness", "tendon_damping", "tendon_lengthspring", "tendon_range", "body_gravcomp"),
    *("key_qpos", "key_qvel", "key_ctrl", "key_act"),
    *("site_pos", "site_quat", "eq_data", "qpos0", "qpos_spring"),
]
NOT_NEGATIVE = {
    *("body_mass", "body_inertia", "jnt_stiffness", "dof_armature", "dof_damping", "dof_frictionloss"),
    *("actuator_armature", "actuator_damping", "geom_size", "geom_friction", "tendon_stiffness", "tendon_damping"),
}


def check_numbers(c: Compiled) -> None:
    """Check mjModel: values also come from meshes and images or overflow, and MuJoCo does not check signs."""
    m = c.m
    for array in NUMBERS:
        values = np.asarray(getattr(m, array))
        values = values.reshape(len(values), int(np.prod(values.shape[1:])))
        for bad, problem in ((~np.isfinite(values), "not finite"), (values < 0, "negative")):
            if (problem != "negative" or array in NOT_NEGATIVE) and bad.any():
                i = int(np.argmax(bad.any(axis=1)))
                kind, _, what = array.partition("_")
                i = int(m.dof_jntid[i]) if kind == "dof" else i
                kind = {"jnt": "joint", "dof": "joint"}.get(kind, kind)
                element = (
                    c.element(kind, i) if kind in ("body", "joint", "geom", "actuator", "tendon") else f"{kind} {i}"
                )
                expected = "0 or more" if problem == "negative" else "a finite number"
                raise c.error(f"{what} of {element} is {problem}", element, expected=expected)


def refuse_medium_and_others(c: Compiled) -> None:
    """Refuse a fluid medium, and contact features."""
    m, opt = c.m, c.m.opt
    if opt.density > 0 or opt.viscosity > 0:
        if "fluid" in c.ignore:
            c.notes.append(f"left out: the fluid medium, density {opt.density:g}, viscosity {opt.viscosity:g}")
        for shaped in np.flatnonzero(np.asarray(m.geom_fluid)[:, 0] > 0):
            element = c.element("geom", int(shaped))
            c.refuse("fluid", f"{element} has a fluid shape", element, expected="the drag of the body's inertia box")
    if m.nflex or m.nplugin:  # the scan finds them first, unless MuJoCo generates them from other elements
        raise ModelError("deformable bodies and plugins are not supported", where=c.source)
    if opt.enableflags & int(c.mj.mjtEnableBit.mjENBL_OVERRIDE):
        c.refuse("contact", "contact parameters are overridden for all shapes", got='<flag override="enable"/>')
    for g in range(m.ngeom):
        if m.geom_adhesion[g] or np.any(m.geom_surfacevel[g]):
            element = c.element("geom", g)
            c.refuse("contact", f"{element} is adhesive or has a moving surface", element)


def note_the_rest(c: Compiled) -> None:
    """Note settings of the scene and features without effect on the motion."""
    m, opt = c.m, c.m.opt
    gravity = (0.0, 0.0, 0.0) if c.disabled("gravity") else tuple(float(g) for g in opt.gravity)
    if gravity != (0.0, 0.0, -9.81):
        c.notes.append(f"left out: gravity {gravity} m/s^2; the scene's is used")
    counts = {"camera": m.ncam, "light": m.nlight, "sensor": m.nsensor}
    counts |= {"skin": m.nskin, "texture": m.ntex, "custom field": m.nnumeric + m.ntext + m.ntuple}
    for word, count in counts.items():
        if count:
            c.notes.append(f"left out: {count} {word}{'s' if count > 1 else ''}")
    for b in np.flatnonzero(np.asarray(m.body_mocapid) >= 0):
        c.notes.append(f"body {c.body_names[b]!r} is a mocap body in MuJoCo; here it is static")
    margins = np.count_nonzero(m.geom_margin) + np.count_nonzero(m.jnt_margin)
    further = np.any(np.asarray(m.geom_condim) > 3)
    if margins or further:
        c.notes.append("only in the contact law 'convex': margins, torsional and rolling friction")
