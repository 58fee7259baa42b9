"""Writes docs/parameters.md, the table of everything that can be learned: `python docs/gen_parameters.py`.

Names and shapes come from a model that has everything; units and what has them stand here, beside the gradient test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kinema as kn

HEAD = """# Parameters with gradients

Every parameter on this page has a gradient. `python docs/gen_parameters.py` generates the page from the code, and a
test compares it with the parameters of a model. Each links to its gradient test: in float64, against central
differences, in contact where that applies, through 1, 32 and 256 steps. Parameters of soft matter are also tested with
implicit steps, by [`test_every_parameter`](tests/gradients/test_implicit.py); robots move alike with both.

## Of a model

Pass values by path in `params=` of `kn.simulate` and others: `"robot/body/mass"`, `"cloth/bending"`, or all of
them, `"mass"`. `model.parameter_names` lists the parameters of a model, `model.parameters(path)` returns the tensor.
Batch dimensions may precede the shape, for one value per world."""

MUJOCO = """### Of tendons, general actuators, media and the law "convex"

They come with MJCF files, or with `kn.Tendon`, `kn.Actuator(kind="general")`, `kn.Body(gravcomp=, drag=)` and
[`kn.Contact(law="convex")`](how-to/contact-laws.md). Their tests go through 1, 8 or 20 steps."""

STATE = """## Of a state

Fields of a `kn.State`, the initial state of `kn.simulate` and `kn.step`. Batch dimensions come first."""

CONTROL = """## Of a control

Fields of a `kn.Control`, the external inputs, per step or constant. Batch dimensions come first."""

SMOKE = """## Of smoke

Arguments of `kn.simulate_smoke`, which simulates smoke on its own. Batch dimensions come first."""

BESIDE = """## Beside gradSim

The parameters that gradSim lists as optimisable, and their names here."""

PAGE = Path(__file__).with_name("parameters.md")

MATTER = ("tests/gradients/test_matter.py", "test_every_parameter")
SELF = ("tests/gradients/test_self_contact.py", "test_gradients_against_differences")
LINKAGE = ("tests/gradients/test_constraints.py", "test_a_linkage_with_everything")
LIMITS = ("tests/gradients/test_impacts.py", "test_tiny_differences_at_limits")
PAIRS = ("tests/gradients/test_constraints.py", "test_pairs_in_contact")
GROUND = ("tests/verification/test_ground.py", "test_gradients_in_contact")
RECORDS = ("tests/gradients/test_records.py", "test_records")
TOLD = ("tests/verification/test_prescribed.py", "test_gradients_with_contact")
STARTED = ("tests/gradients/test_pgs_warm_start.py", "test_gradients_through_kept_impulses")
MUSCLES = ("tests/gradients/test_matter.py", "test_activation_as_a_control")
PUSHED = ("tests/gradients/test_matter.py", "test_forces_as_a_control")
FEATURES = ("tests/gradients/test_transmissions.py", "test_gradients")
CONVEX = ("tests/gradients/test_convex.py", "test_gradients")
OWN = ("tests/gradients/test_user_forces.py", "test_rollouts")
PUFFS = ("tests/gradients/test_smoke.py", "test_gradients_of_rollouts")

# Name in params: unit, the axis its rows go along (none: one for the scene), what it is, and its gradient test.
PARAMETERS = {
    "mass": ("kg", "bodies", "mass", LINKAGE),
    "com": ("m", "bodies", "centre of mass, in the body's frame", LINKAGE),
    "inertia": ("kg m²", "bodies", "about the centre of mass: xx, xy, xz, yy, yz, zz", LINKAGE),
    "offset": ("m", "joints", "position of the joint on its parent", LINKAGE),
    "axis": ("-", "joints", "direction of the joint", LINKAGE),
    "armature": ("kg m², kg", "velocities", "inertia of the drive", LINKAGE),
    "damping": ("N m s/rad, N s/m", "velocities", "of the joint", LINKAGE),
    "stiffness": ("N m/rad, N/m", "revolute and prismatic joints", "of the joint's spring", RECORDS),
    "rest": ("rad, m", "revolute and prismatic joints", "rest position of the joint's spring", RECORDS),
    "gear": ("-", "actuators", "force per control", LINKAGE),
    "kp": ("N m/rad, N/m", "actuators", "gain of a position servo", LINKAGE),
    "kd": ("N m s/rad, N s/m", "actuators", "gain of a velocity or position servo", LINKAGE),
    "force": ("N m, N", "actuators", "largest force", LINKAGE),
    "lower": ("rad, m", "limited joints", "lower limit", LINKAGE),
    "upper": ("rad, m", "limited joints", "upper limit", LINKAGE),
    "dry_friction": ("N m, N", "joints with dry friction", "dry friction", LINKAGE),
    "size": ("m", "shapes", "radius, half length, half edges; scales of a mesh", PAIRS),
    "centre": ("m", "shapes", "position of the shape on its link", PAIRS),
    "friction": ("-", "contact pairs", "coefficient of friction between rigid shapes", PAIRS),
    "restitution": ("-", "contact pairs", "coefficient of restitution", GROUND),
    "place": ("m", "sites", "position of the site on its link", RECORDS),
    "gravity": ("m/s²", "", "acceleration of gravity", LINKAGE),
    "contact/erp": ("-", "", "fraction of penetration corrected per step (ERP)", PAIRS),
    "contact/cfm": ("1/kg", "", "softness of hard constraints (CFM)", PAIRS),
    "contact/k_e": ("N/m", "", "stiffness of compliant contact between rigid shapes", PAIRS),
    "contact/k_d": ("N s/m", "", "its damping", PAIRS),
    "contact/k_f": ("N s/m", "", "its friction at low speed", PAIRS),
    "contact/limit_restitution": ("-", "", "coefficient of restitution of joint limits", LIMITS),
    "point_mass": ("kg", "particles", "mass of a particle, in addition to that of its elements", MATTER),
    "density": ("kg/m³, kg/m²", "elements", "of tetrahedra, of triangles", MATTER),
    "mu": ("Pa, N/m", "elements", "of the energy of solids and cloth: against shear", MATTER),
    "lam": ("Pa, N/m", "elements", "against a change of volume or area", MATTER),
    "viscosity": ("Pa s, N s/m", "elements", "damping of the strain rate", MATTER),
    "activation": ("-", "elements", "fraction by which the rest volume or area shrinks", MATTER),
    "bending": ("N m", "edges between triangles", "stiffness of a fold", MATTER),
    "bending_damping": ("N m s", "edges between triangles", "its damping", MATTER),
    "fold": ("rad", "edges between triangles", "activation of a fold, added to half of its angle", MATTER),
    "drag": ("kg/m³", "triangles", "coefficient of drag in wind", MATTER),
    "lift": ("kg/m³", "triangles", "coefficient of lift in wind", MATTER),
    "wind": ("m/s", "", "velocity of the air", MATTER),
    "spring_stiffness": ("N/m", "springs", "of springs between particles", MATTER),
    "spring_damping": ("N s/m", "springs", "along the spring", MATTER),
    "spring_rest": ("m", "springs", "length at rest", MATTER),
    "skin_radius": ("m", "soft bodies with a skin", "radius of their vertices", MATTER),
    "skin_k_e": ("N/m", "soft bodies with a skin", "stiffness of the contact of a vertex", MATTER),
    "skin_k_d": ("N s/m", "soft bodies with a skin", "its damping", MATTER),
    "skin_k_f": ("N s/m", "soft bodies with a skin", "its friction at low speed", MATTER),
    "skin_friction": ("-", "soft bodies with a skin", "its coefficient of friction", MATTER),
    "skin_thickness": ("m", "soft bodies with a skin", "distance below which soft bodies repel each other", SELF),
}

SOLREF, SOLIMP = "time constant [s] and damping ratio", "impedance: three numbers, midpoint, power"
# The same for a robot with everything that MJCF files may add.
OF_MJCF = {
    "least_force": ("N m, N", "actuators", "least force", FEATURES),
    "actuator_gain": (
        "of the actuator",
        "actuators",
        "gain of a general actuator: constant, length, velocity",
        FEATURES,
    ),
    "actuator_bias": ("of the actuator", "actuators", "its force without control, likewise", FEATURES),
    "activation_times": ("s, -", "actuators with an activation", "time constants; smoothing of muscles", FEATURES),
    "muscle": ("N, -", "muscles", "force, both ends of the range, lmin, lmax, vmax, fpmax, fvmax", FEATURES),
    "tendon_stiffness": ("N/m", "tendons", "of the tendon's spring", FEATURES),
    "tendon_damping": ("N s/m", "tendons", "its damping", FEATURES),
    "gravcomp": ("-", "bodies", "compensated part of the weight", FEATURES),
    "fluid_density": ("kg/m³", "bodies with drag", "of the medium", FEATURES),
    "fluid_viscosity": ("Pa s", "bodies with drag", "of the medium", FEATURES),
    "contact/impratio": ("-", "", "impedance of friction over that of the normal force", CONVEX),
    "solref": ("-", "contact pairs", SOLREF, CONVEX),
    "solimp": ("-", "contact pairs", SOLIMP, CONVEX),
    "friction_solref": ("-", "contact pairs", "of friction of an elliptic cone; zero for that of the normal", CONVEX),
    "torsional": ("m", "contact pairs", "torsional friction", CONVEX),
    "rolling": ("m", "contact pairs", "rolling friction", CONVEX),
    "limit_solref": ("-", "limited joints", SOLREF, CONVEX),
    "limit_solimp": ("-", "limited joints", SOLIMP, CONVEX),
    "dry_solref": ("-", "joints with dry friction", SOLREF, CONVEX),
    "dry_solimp": ("-", "joints with dry friction", SOLIMP, CONVEX),
    "mimic_solref": ("-", "mimic joints", SOLREF, CONVEX),
    "mimic_solimp": ("-", "mimic joints", SOLIMP, CONVEX),
    "loop_solref": ("-", "loop closures", SOLREF, CONVEX),
    "loop_solimp": ("-", "loop closures", SOLIMP, CONVEX),
}

# Part of kn.State: unit, shape, what it is, and its gradient test.
OF_STATE = {
    "q": ("m, rad, -", "nq", "coordinates: positions, orientations, joints", LINKAGE),
    "v": ("m/s, rad/s", "nv", "velocities", LINKAGE),
    "x": ("m", "particles, 3", "positions of particles", MATTER),
    "xd": ("m/s", "particles, 3", "velocities of particles", MATTER),
    "impulses": ("N s", "rows", "of the previous step, with a warm start", STARTED),
    "time": ("s", "", "where a law of force reads it", OWN),
    "act": ("of the actuator", "actuators with an activation", "activations", FEATURES),
}

# Part of kn.Control, likewise.
OF_CONTROL = {
    "u": ("of the actuator", "steps, actuators", "controls of the actuators", LINKAGE),
    "tau": ("N m, N", "steps, nv", "force of each degree of freedom", LINKAGE),
    "motion": ("m/s, rad/s", "steps, prescribed velocities", "of prescribed joints", TOLD),
    "wrenches": ("N m, N", "steps, 6", "moment and force on a body", LINKAGE),
    "forces": ("N", "steps, particles, 3", "external force on every particle", PUSHED),
    "activation": ("-", "steps, elements", "contraction of tetrahedra and triangles", MUSCLES),
}
ARGUMENTS = OF_STATE | OF_CONTROL

# Argument of kn.simulate_smoke, likewise.
OF_SMOKE = {
    "density": ("-", "channels, nx, ny", "initial densities", PUFFS),
    "velocity": ("m/s", "2, nx, ny", "initial velocities of faces", PUFFS),
    "force": ("m/s²", "steps, 2, nx, ny", "acceleration of faces", PUFFS),
    "buoyancy": ("m/s²", "channels", "upward acceleration per density", PUFFS),
}

# What gradSim lists as optimisable [Jatavallabhula et al. 2021, table 6], and where it is here.
GRADSIM = {
    "initial position, orientation": ("q", "x"),
    "initial velocity": ("v", "xd"),
    "mass of a body, of a particle": ("mass", "point_mass", "density"),
    "gravity": ("gravity",),
    "external force": ("forces", "tau", "wrenches"),
    "rest length, stiffness, damping of springs": ("spring_rest", "spring_stiffness", "spring_damping"),
    "Lamé parameters per element": ("mu", "lam"),
    "damping of elements": ("viscosity",),
    "activation of elements, of edges": ("activation", "fold"),
    "bending": ("bending", "bending_damping"),
    "wind, drag, lift": ("wind", "drag", "lift"),
    "contact: k_e, k_d, k_f, friction": ("skin_k_e", "skin_k_d", "skin_k_f", "skin_friction"),
    "elasticity of impacts": ("restitution", "contact/k_e", "contact/k_d"),
}


def everything() -> kn.Model:
    """A model that has every kind of parameter; no two numbers that belong to different axes are equal by chance."""
    box = kn.Box((0.1, 0.1, 0.1))
    hinge = kn.Joint("hinge", "revolute", lower=-1.0, upper=1.0, friction=0.1)
    body = kn.Body("link", None, kn.Pose((0.0, 0.0, 1.0)), (hinge,), kn.mass_properties(box), (box,))
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(kn.Robot("robot", (body,), (kn.Actuator("motor", "hinge"),)))
    scene.add_site("robot/link", "tip")
    scene.add_solid(kn.shapes.block((1, 1, 1), 0.1), "solid", material=kn.Solid(viscosity=1.0))
    cloth = kn.Cloth(viscosity=1.0, bending=1.0, bending_damping=1.0, drag=1.0, lift=1.0)
    scene.add_cloth(kn.shapes.sheet(0.1, 0.1, (2, 2)), "cloth", material=cloth)
    scene.add_particles(np.eye(3), "particles", mass=1.0, springs=kn.Springs([[0, 1], [1, 2]]))
    return kn.compile(scene)


def robot_of_mjcf() -> kn.Model:
    """A robot with what MJCF files may add, in the law "convex"."""
    box = kn.Box((0.1, 0.1, 0.1))
    joints = (
        kn.Joint("shoulder", "revolute", lower=-1.0, upper=1.0, friction=0.1),
        kn.Joint("elbow", "revolute"),
        kn.Joint("wrist", "revolute", mimic=kn.Mimic("elbow")),
    )
    bodies = [
        kn.Body(
            f"link{i}",
            f"link{i - 1}" if i else None,
            kn.Pose((0.0, 0.0, 1.0)),
            (joint,),
            kn.mass_properties(box),
            (box,),
            gravcomp=0.5,
            drag=kn.Drag((0.1, 0.1, 0.1), density=1.0, viscosity=0.1),
        )
        for i, joint in enumerate(joints)
    ]
    cord = kn.Tendon("cord", (("shoulder", 1.0), ("elbow", 1.0)), stiffness=1.0, damping=0.1)
    motor = kn.Actuator("motor", "", "general", tendon="cord", force=1.0, least_force=-2.0)
    slow, curve = kn.Activation("muscle", (0.01, 0.04, 0.0)), kn.Muscle(20.0, (-1.0, 1.0))
    muscle = kn.Actuator("muscle", "shoulder", "general", activation=slow, muscle=curve)
    loop = kn.Closure("loop", "connect", "link0", "link2")
    robot = kn.Robot("robot", tuple(bodies), (motor, muscle), (loop,), tendons=(cord,))
    scene = kn.Scene(contact=kn.Contact(law="convex"))
    scene.add_ground()
    scene.add_robot(robot)
    return kn.compile(scene)


def page() -> str:
    """The page as text."""
    lines = [*HEAD.splitlines(), "", *_heads("name"), *_rows(everything(), PARAMETERS)]
    lines += ["", *MUJOCO.splitlines(), "", *_heads("name"), *_rows(robot_of_mjcf(), OF_MJCF)]
    for head, first, rows in (
        (STATE, "part", OF_STATE),
        (CONTROL, "part", OF_CONTROL),
        (SMOKE, "argument", OF_SMOKE),
    ):
        lines += ["", *head.splitlines(), "", *_heads(first)]
        lines += [_row(f"`{n}`", unit, [shape], what, test) for n, (unit, shape, what, test) in rows.items()]
    lines += ["", *BESIDE.splitlines(), "", "| gradSim | here |", "|---|---|"]
    lines += [f"| {what} | {', '.join(f'`{n}`' for n in names)} |" for what, names in GRADSIM.items()]
    return "\n".join(lines) + "\n"


def _rows(model: kn.Model, known: dict[str, tuple[str, str, str, tuple[str, str]]]) -> list[str]:
    """Rows of the parameters of a model that a table knows."""
    found = []
    for name in filter(known.__contains__, model.parameter_names):
        unit, axis, what, test = known[name]
        inner = tuple(model.parameters(name)[name].shape)[1 if axis else 0 :]
        found.append(_row(f"`{name}`", unit, [*([axis] if axis else []), *map(str, inner)], what, test))
    return found


def tensor_arguments(function: Callable[..., Any]) -> list[str]:
    """Arguments of a function that are tensors, or tensors by name, `params` apart."""
    given = inspect.signature(function).parameters.values()
    return [p.name for p in given if "Tensor" in str(p.annotation) and p.name != "params"]


def tests() -> set[tuple[str, str]]:
    """Files and names of all gradient tests that the page links to."""
    return {row[3] for table in (PARAMETERS, ARGUMENTS, OF_SMOKE) for row in table.values()}


def _heads(first: str) -> list[str]:
    return [f"| {first} | unit | shape | what it is | gradient test |", "|---|---|---|---|---|"]


def _row(name: str, unit: str, shape: list[str], what: str, test: tuple[str, str]) -> str:
    file, function = test
    return f"| {name} | {unit} | ({', '.join(shape)}) | {what} | [`{function}`]({file}) |"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE.relative_to(Path(__file__).parents[1]), len(PARAMETERS) + len(ARGUMENTS) + len(OF_SMOKE), "rows")
