"""Programs that ship compiled with the package, and functions that list and show their kernels.

Runs without torch and without an installed Kinema, because pip builds in isolation.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from kinema import contact, dynamics, integrate, kinematics
from kinema.errors import KernelError
from kinema.lang.build import compiler, cpu
from kinema.lang.emit import simd
from kinema.lang.emit.scalar import emit_scalar
from kinema.lang.ir import analysis
from kinema.lang.ir.ssa import ArrayRef, KernelIR
from kinema.lang.kernels.kernel import REGISTRY, Kernel
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import CONTROL, OUTPUT, PARAMETER, Program
from kinema.lang.programs.pullback_plan import PullbackPlan
from kinema.model.arrays import SceneArrays, find_arrays
from kinema.rendering.face_points import Look
from kinema.rendering.image_program import Faces, Shape, image_program
from kinema.rendering.rasteriser import rings
from kinema.scene.contact import Contact
from kinema.scene.description import (
    BOX,
    CAPSULE,
    CYLINDER,
    FREE,
    MESH,
    SPHERE,
    Body,
    Joint,
    MassProperties,
    Mesh,
    Robot,
)
from kinema.scene.description import Shape as Solid
from kinema.scene.matter import SKIN, Cloth
from kinema.scene.matter import Solid as Elastic
from kinema.scene.scene import Scene
from kinema.scene.shapes.arm import arm
from kinema.scene.shapes.block import block
from kinema.scene.shapes.golf import golf_ball, golfer
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.sheet import sheet
from kinema.simulation.jacobian_program import jacobian_program
from kinema.simulation.links import TreeTables, report_poses
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.rk4 import rk4_program
from kinema.simulation.step import step_program

STAGES: tuple[ModuleType, ...] = (kinematics, dynamics, contact, integrate)  # `kernels` adds those of images
EVERY = ("forward", "reverse", "tangent")  # lists of instructions
TOGETHER = ("stiffness", "damping"), ("kp", "kd")  # arguments of one kernel
FITTED = (  # parameters often learned together
    (),
    ("mass",),
    ("mass", "inertia"),
    ("friction",),
    ("mass", "friction", "damping", "offset"),
    ("mass", "inertia", "friction", "contact/k_e", "contact/k_d", "contact/k_f"),
    ("gravity",),
    ("com", "offset"),
)
OF_SOFT = (  # learned parameters
    (),
    *(
        names
        for kind in ("solid0", "cloth")
        for names in ((f"{kind}_mu",), (f"{kind}_lam",), (f"{kind}_mu", f"{kind}_lam"))
    ),
    *((f"{kind}_activation",) for kind in ("solid0", "cloth")),
    ("inv_mass",),
)


def image_plans() -> Iterator[tuple[Program, Options]]:
    """Render programs: one surface, sharp, soft and two-sided; several; a scene on the ground, also with shadows.

    Compiled in both precisions, without gradients and with gradients to the vertices, which move shadows on the ground;
    in double precision also unlit, with colours of vertices, and masks; in single precision also supersampled. The
    compiled code does not depend on sizes.
    """
    alone = Look(coverage=False)
    shining, unlit = replace(alone, specular=True), replace(alone, lit="none", directional=0)
    scene = replace(shining, textured="some", many=True)
    shadows = replace(scene, smooth="some", two_sided="some")
    lone = (alone, shining, replace(shining, two_sided="all"), replace(shining, many=True), scene)
    common = [(_image(look), {"vertices"}) for look in lone]
    common += [(_image(replace(alone, edges=False), soft=True), {"vertices"}), (_image(shadows), {"vertices", "uv"})]
    films = [(_image(look, times=2), set[str]()) for look in (lone[3], scene, shadows)]
    coloured = (unlit, *(replace(look, vertex_colours=True) for look in (unlit, shining)))
    masks = [replace(unlit, colours=False, coverage=True, many=many) for many in (False, True)]
    painted = replace(scene, lit="some", specular=False)
    double = [(_image(look), {"vertices"}) for look in (*coloured, painted, *masks)]
    for precision, wanted in ((4, common + films), (8, common + double)):
        width = _width(precision, analysis.ELEMENTS)
        for program, learned in wanted:
            for wrt in dict.fromkeys((frozenset[str](), frozenset(learned))):
                yield program, Options(precision, analysis.ELEMENTS, width, wrt, _outputs(program))


def _image(look: Look, soft: bool = False, times: int = 1) -> Program:
    triangle = np.array([[0, 1, 2]], dtype=np.int32)
    faces = Faces(triangle, np.zeros(1, np.int32), rings(triangle))
    count = 1 + look.many
    traits, textures = ((1, 1, 1, 0), (1, 1, 0, 0))[-count:], ((256, 256), (0, 0))[-count:]
    room = (1,) if soft else (1, 1, 1, 1, 1)
    output = "rgb" if look.colours else "alpha"
    return image_program(faces, Shape(look, (8, 8), 0.1, 100.0, 3, traits, textures, room, (output,), times, soft))


def soft_program() -> Program:
    """The step of a soft body on a plane and a sphere; its kernels serve scenes with one or neither of them as well."""
    scene = Scene()
    scene.add_ground()
    scene.add_body(Solid(SPHERE, (0.1,)), fixed=True)
    scene.add_solid(block((1, 1, 1), 0.1))
    return step_program(find_arrays(scene), name="soft")


def damped_programs() -> Iterator[Program]:
    """Steps of solids and cloths with viscosity, with substeps: in free motion, on a plane, and with muscles."""
    solid, cloth = Elastic(viscosity=1.0), Cloth(viscosity=1.0)
    bent = Cloth(viscosity=1.0, bending=1.0, bending_damping=1.0, drag=1.0)
    for material, skin, activated in (
        (solid, None, False),
        (bent, None, False),
        (cloth, None, False),
        (solid, SKIN, True),
        (cloth, SKIN, True),
    ):
        scene = Scene()
        scene.add_ground()
        if isinstance(material, Elastic):
            scene.add_solid(block((1, 1, 1), 0.1), material=material, skin=skin)
        else:
            scene.add_cloth(sheet(0.1, 0.1, (1, 1)), material=material, skin=skin)
        yield step_program(find_arrays(scene), StepOptions(activated=activated, substeps=2), "soft")


def pose_plans() -> Iterator[tuple[Program, Options]]:
    """Poses of links, for images and losses: double precision, with gradients to coordinates and places of joints."""
    program = Program("links")
    report_poses(program, TreeTables(program, next(_on_a_plane((arm(),)))[1].tree))
    for lanes in (analysis.ELEMENTS, analysis.WORLDS):
        for wrt in ((), ("q",), ("q", "offset")):
            yield program, Options(8, lanes, _width(8, lanes), frozenset(wrt), _outputs(program))


def robot_programs() -> list[Program]:
    """Steps of robots on a plane.

    Kernels loop over tables, so all robots share them. Together, these robots cover all shapes, limits and actuators
    and their absence, few candidates and many (for which there is a broad phase), and no constraints at all.
    """
    corners = np.vstack([np.zeros(3), np.eye(3)])
    tetrahedron = Mesh(corners, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))
    shapes = Solid(CYLINDER, (0.1, 0.1)), Solid(MESH, mesh=tetrahedron)
    plain = Solid(SPHERE, (0.1,)), Solid(CAPSULE, (0.1, 0.1)), Solid(BOX, (0.1, 0.1, 0.1))
    mass = MassProperties(1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    thrown, tossed = (
        Robot(name, (Body("body", joints=(Joint("free", FREE),), mass=mass, shapes=given),))
        for name, given in (("thrown", shapes), ("tossed", plain))
    )
    robots = thrown, tossed, arm(), humanoid(), pendulum()
    return [step_program(model, name=robot.name) for robot, model in _on_a_plane(robots)]


def _on_a_plane(robots: Iterable[Robot]) -> Iterator[tuple[Robot, SceneArrays]]:
    """Yield each robot with the arrays of a scene that holds it and the ground."""
    for robot in robots:
        scene = Scene()
        scene.add_ground()
        scene.add_robot(robot)
        yield robot, find_arrays(scene)


def _arm_and_ball() -> SceneArrays:
    """An arm and a ball, which touches all of its shapes."""
    scene = Scene()
    scene.add_ground()
    scene.add_robot(arm())
    scene.add_body(Solid(SPHERE, (0.1,)), "ball")
    return find_arrays(scene)


def further_programs() -> Iterator[Program]:
    """Steps of robots beside other bodies, with pushes and records, and in the other contact laws."""
    yield step_program(_arm_and_ball(), name="ball")
    for things in ((golfer(), golf_ball()), (golf_ball(),)):  # impacts at their time
        scene = Scene(contact=Contact(restitution=0.6))
        scene.add_ground()
        for robot in things:
            scene.add_robot(robot)
        yield step_program(find_arrays(scene), StepOptions(record=("impulse",)), name="impacts")
    scene = Scene(contact=Contact(law="compliant"))
    scene.add_ground()
    scene.add_body([Solid(SPHERE, (0.1,)), Solid(BOX, (0.1, 0.1, 0.1)), Solid(CAPSULE, (0.1, 0.1))], "body")
    for loaded in ((), ("body/body",)):
        yield step_program(find_arrays(scene), StepOptions(loaded), name="compliant")
    scene = Scene()
    scene.add_robot(pendulum())
    yield rk4_program(find_arrays(scene))
    for robot in (humanoid(), quadruped()):
        scene = Scene(contact=Contact(law="convex"))
        scene.add_ground()
        scene.add_robot(robot)
        yield step_program(find_arrays(scene), name="convex")


def fitted_variants(program: Program) -> Iterator[Options]:
    """Options that `further_programs` are compiled for: double precision, one world and batches.

    Gradients go to the state alone, or to the state and all controls, or to the state and parameters often fitted.
    """
    controls = [b.name for b in program.buffers.values() if b.kind == CONTROL and "f" in b.kinds]
    wanted = dict.fromkeys(frozenset(names) & set(program.buffers) for names in (*FITTED, controls))
    for lanes in (analysis.ELEMENTS, analysis.WORLDS):
        for wrt in wanted:
            yield Options(8, lanes, _width(8, lanes), wrt, _outputs(program))


def jacobian_plans() -> Iterator[Plan]:
    """Jacobians of robot steps with respect to state and controls, in double precision."""
    width = _width(8, analysis.WORLDS)
    models = [model for _, model in _on_a_plane((arm(), humanoid(), quadruped(), pendulum()))]
    for model in (*models, _arm_and_ball()):
        for acting in (("u",),) * (len(model.actuators) > 0) + (("tau",),):
            program = jacobian_program(model, PLAIN, acting, width)
            assert program is not None
            yield PullbackPlan(program, Options(8, analysis.COTANGENTS, width, record=_outputs(program)))


def robot_variants(program: Program) -> Iterator[Options]:
    """Options that a robot's step is compiled for: one world in double precision, batches in both.

    Gradients go to the state alone, or to the state and: one parameter or control; parameters often learned together;
    all controls; all parameters of the model; all controls and parameters.
    """
    floats = [b for b in program.buffers.values() if "f" in b.kinds and b.name != "dt"]
    numbers, controls = ([b.name for b in floats if b.kind == kind] for kind in (PARAMETER, CONTROL))
    outputs = _outputs(program)
    pairs = [list(pair) for pair in TOGETHER if set(pair) <= set(numbers)]
    wanted = [[], *([name] for name in numbers + controls), *pairs, controls, numbers, numbers + controls]
    for precision, lanes in ((8, analysis.ELEMENTS), (8, analysis.WORLDS), (4, analysis.WORLDS)):
        for wrt in wanted:
            yield Options(precision, lanes, _width(precision, lanes), frozenset(wrt), outputs)


def soft_variants(program: Program) -> Iterator[Options]:
    """Options that a soft body's step is compiled for: one world and batches in both precisions.

    Gradients go to the state alone, or to the state and one stiffness, both stiffnesses, the masses, or the muscles.
    """
    wanted = dict.fromkeys(frozenset(names) & set(program.buffers) for names in OF_SOFT)
    for precision in (4, 8):
        for lanes in (analysis.ELEMENTS, analysis.WORLDS):
            for learned in wanted:
                yield Options(precision, lanes, _width(precision, lanes), learned)


def _outputs(program: Program) -> frozenset[str]:
    return frozenset(b.name for b in program.buffers.values() if b.kind == OUTPUT)


def _width(precision: int, lanes: str) -> int:
    """Lanes of a register of the current compile target."""
    return compiler.lanes_of_worlds(precision, compiler.target()) if lanes == analysis.WORLDS else cpu.lanes(precision)


def sources() -> list[str]:
    """C++ source files of all shipped programs."""
    soft = [(p, o) for p in (soft_program(), *damped_programs()) for o in soft_variants(p)]
    further = [(p, o) for p in further_programs() for o in fitted_variants(p)]
    robots = robot_programs()
    found = [Plan(*plan).sources(EVERY) for plan in (*image_plans(), *pose_plans(), *soft, *further)]
    found += [Plan(p, o).sources(("forward", "reverse")) for p in robots for o in robot_variants(p)]
    found += [Plan(p, o).sources(("tangent",)) for p in robots for o in fitted_variants(p)]
    found += [plan.sources(("forward",)) for plan in jacobian_plans()]
    return list(dict.fromkeys(text for texts in found for text in texts))


def build_all(target: Path) -> None:
    """Compile the runtime and the shipped programs into a folder; unchanged libraries are kept, stale ones removed."""
    jobs = {compiler.runtime_key(): None, **{compiler.key_of(text, compiler.KERNEL_FLAGS): text for text in sources()}}
    for old in target.iterdir():
        if old.is_dir() and old.name not in jobs:
            shutil.rmtree(old)

    def compile_one(key: str) -> None:
        folder = target / key
        if (folder / "target.json").exists() and compiler.target() == compiler.built_for(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = jobs[key]
        if text is None:
            compiler.compile_runtime(folder)
        else:
            compiler.compile_into(folder, text, compiler.KERNEL_FLAGS)

    with ThreadPoolExecutor(max_workers=cpu.threads()) as pool:
        list(pool.map(compile_one, jobs))


def kernels() -> dict[str, Kernel]:
    """All kernels of the package by name."""
    for stage in STAGES:
        for module in pkgutil.walk_packages(stage.__path__, f"{stage.__name__}."):
            importlib.import_module(module.name)
    list(image_plans()), soft_program()  # some kernels are specialised for their arguments
    return {kernel.name: kernel for home, kernel in sorted(REGISTRY.items()) if home.startswith("kinema.")}


def list_kernels() -> list[tuple[str, str]]:
    """Names and one-line summaries of the package's kernels."""
    return [(name, (kernel.__doc__ or "").strip().splitlines()[0]) for name, kernel in kernels().items()]


def show(
    name: str, *, adjoint: bool = False, tangent: bool = False, width: int | None = None, scalar: bool = False
) -> str:
    """The C++ emitted for a kernel, float32.

    Args:
        name: Name of the kernel.
        adjoint: Show the reverse sweep with cotangents of every Float argument.
        tangent: Show the forward derivative.
        width: Lanes; this machine's by default.
        scalar: Show the `template <class T>` form.
    """
    found = kernels()
    if name not in found:
        raise KernelError(f"unknown kernel {name!r}", expected=", ".join(found))
    if width is not None and width not in (1, 2, 4, 8, 16):
        raise KernelError(f"kernels are emitted for 1, 2, 4, 8 or 16 lanes, not {width}")
    kernel = found[name]
    every = frozenset(a.name for a in kernel.arrays if "f" in a.kinds)
    form = kernel.adjoint(every) if adjoint else kernel.tangent(every) if tangent else kernel.forward()
    if scalar:
        return emit_scalar(form, form.name)
    return simd.emit(form, form.name, layouts=_layouts(form), width=width or cpu.lanes(4)).text


def _layouts(kernel: KernelIR) -> dict[ArrayRef, str]:
    """The layouts that a program would choose if no other kernel used the arrays."""
    uses = analysis.accesses(kernel, analysis.varying_values(kernel, analysis.ELEMENTS, set()))
    own = {a: {u.index for u in uses if u.array in (a, a.origin)} <= {"own"} for a in kernel.arrays}
    return {a: simd.PACKET if own[a] and len(a.kinds) > 1 else simd.AOS for a in kernel.arrays}
