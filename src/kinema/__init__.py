"""Kinema: a differentiable simulator. This page is the whole public API, in the order of the flow.

Names are imported at first use, so `import kinema` is quick and needs neither torch nor numpy: the build step runs
without both. Enter a new name twice: in `_API`, and below it for type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public modules, as in `kinema.lang.kernels.kernel`: name -> import path.
_MODULES = {
    "lang": "kinema.lang",
    "math": "kinema.math",
    "shapes": "kinema.scene.shapes",
    "inertia": "kinema.model.inertia",
    "conventions": "kinema.rendering.conventions",
    "errors": "kinema.errors",
}

# Module -> its public names.
_API = {
    "kinema.lang.programs.program": ("Program",),
    "kinema.lang.autograd.rollout": ("rollout", "jvp", "Rollout"),
    "kinema.scene.io.urdf": ("read_urdf",),
    "kinema.scene.io.mjcf": ("read_mjcf",),
    "kinema.scene.io.meshes": ("read_obj",),
    "kinema.scene.io.msh": ("read_msh",),
    "kinema.scene.io.tetrahedralise": ("tetrahedralise",),
    "kinema.scene.description": (
        "Robot",
        "Body",
        "Joint",
        "Mimic",
        "Site",
        "Actuator",
        "Closure",
        "Drag",
        "MassProperties",
        "Pose",
        "Shape",
        "Mesh",
        "Tets",
    ),
    "kinema.scene.primitives": ("Sphere", "Capsule", "Cylinder", "Box", "Ellipsoid", "Hull", "Plane"),
    "kinema.scene.mass_properties": ("mass_properties", "quaternion"),
    "kinema.scene.drives": ("Servo", "VelocityServo", "Motor"),
    "kinema.scene.tendons": ("Tendon",),
    "kinema.scene.keyframes": ("Keyframe",),
    "kinema.scene.activation": ("Activation", "Muscle"),
    "kinema.scene.handles": ("RobotHandle", "MatterHandle"),
    "kinema.scene.scene": ("Scene",),
    "kinema.scene.contact": ("Contact",),
    "kinema.scene.softness": ("Softness", "ContactSurface", "ContactPair"),
    "kinema.scene.matter": ("Solid", "Cloth", "Springs", "Skin"),
    "kinema.model.model": ("compile", "Model"),
    "kinema.model.tetmesh": ("tet_mesh", "TetArrays"),
    "kinema.model.state": ("State",),
    "kinema.simulation.control": ("Control",),
    "kinema.lang.autograd.options": ("RunOptions",),
    "kinema.simulation.simulate": ("simulate", "step"),
    "kinema.simulation.trajectory": ("Trajectory",),
    "kinema.simulation.linearise": ("linearise", "Linearised"),
    "kinema.simulation.robot_dynamics": (
        "forward_kinematics",
        "body_jacobian",
        "centre_of_mass",
        "momentum",
        "mass_matrix",
        "inverse_dynamics",
        "forward_dynamics",
        "kinetic_energy",
        "potential_energy",
    ),
    "kinema.simulation.smoke": ("simulate_smoke", "SmokeBox", "SmokeState", "SmokeTrajectory"),
    "kinema.rendering.camera": ("Camera",),
    "kinema.rendering.surface": ("Surface", "Material", "Lights"),
    "kinema.rendering.render": ("render", "surfaces_of"),
    "kinema.rendering.options": ("RenderOptions",),
    "kinema.rendering.stages": ("Raster", "rasterise", "interpolate", "vertex_normals", "shade"),
    "kinema.rendering.softras": ("Soft",),
    "kinema.rendering.files": (
        "write_image",
        "write_video",
        "read_images",
        "read_masks",
        "read_video",
        "to_srgb",
        "to_linear",
    ),
    "kinema.fitting.losses": ("pixel_loss", "silhouette_loss", "pyramid_loss", "marginal_loss"),
    "kinema.fitting.fit": ("fit",),
    "kinema.fitting.landscape": ("landscape", "Landscape"),
    "kinema.fitting.result": ("Fit",),
    "kinema.fitting.check_gradient": ("check_gradient",),
    "kinema.fitting.gradient_report": ("GradientCheck",),
    "kinema.planning.cost": ("Cost",),
    "kinema.planning.plan": ("plan", "Plan"),
    "kinema.planning.mpc": ("MPC",),
    "kinema.storage.objects": ("save", "load"),
    "kinema.errors": (
        "KinemaError",
        "KernelError",
        "BuildError",
        "CacheError",
        "ProgramError",
        "InputError",
        "ModelError",
        "StorageError",
        "SimulationError",
        "MemoryBudgetError",
        "ContactWarning",
        "EmptyImageWarning",
        "LeftOutWarning",
        "StabilityWarning",
        "UnsolvedWarning",
    ),
}

if TYPE_CHECKING:
    from kinema import errors as errors
    from kinema import lang as lang
    from kinema import math as math
    from kinema.errors import BuildError as BuildError
    from kinema.errors import CacheError as CacheError
    from kinema.errors import ContactWarning as ContactWarning
    from kinema.errors import EmptyImageWarning as EmptyImageWarning
    from kinema.errors import InputError as InputError
    from kinema.errors import KernelError as KernelError
    from kinema.errors import KinemaError as KinemaError
    from kinema.errors import LeftOutWarning as LeftOutWarning
    from kinema.errors import MemoryBudgetError as MemoryBudgetError
    from kinema.errors import ModelError as ModelError
    from kinema.errors import ProgramError as ProgramError
    from kinema.errors import SimulationError as SimulationError
    from kinema.errors import StabilityWarning as StabilityWarning
    from kinema.errors import StorageError as StorageError
    from kinema.errors import UnsolvedWarning as UnsolvedWarning
    from kinema.fitting.check_gradient import check_gradient as check_gradient
    from kinema.fitting.fit import fit as fit
    from kinema.fitting.gradient_report import GradientCheck as GradientCheck
    from kinema.fitting.landscape import Landscape as Landscape
    from kinema.fitting.landscape import landscape as landscape
    from kinema.fitting.losses import marginal_loss as marginal_loss
    from kinema.fitting.losses import pixel_loss as pixel_loss
    from kinema.fitting.losses import pyramid_loss as pyramid_loss
    from kinema.fitting.losses import silhouette_loss as silhouette_loss
    from kinema.fitting.result import Fit as Fit
    from kinema.lang.autograd.options import RunOptions as RunOptions
    from kinema.lang.autograd.rollout import Rollout as Rollout
    from kinema.lang.autograd.rollout import jvp as jvp
    from kinema.lang.autograd.rollout import rollout as rollout
    from kinema.lang.programs.program import Program as Program
    from kinema.model import inertia as inertia
    from kinema.model.model import Model as Model
    from kinema.model.model import compile as compile
    from kinema.model.state import State as State
    from kinema.model.tetmesh import TetArrays as TetArrays
    from kinema.model.tetmesh import tet_mesh as tet_mesh
    from kinema.planning.cost import Cost as Cost
    from kinema.planning.mpc import MPC as MPC
    from kinema.planning.plan import Plan as Plan
    from kinema.planning.plan import plan as plan
    from kinema.rendering import conventions as conventions
    from kinema.rendering.camera import Camera as Camera
    from kinema.rendering.files import read_images as read_images
    from kinema.rendering.files import read_masks as read_masks
    from kinema.rendering.files import read_video as read_video
    from kinema.rendering.files import to_linear as to_linear
    from kinema.rendering.files import to_srgb as to_srgb
    from kinema.rendering.files import write_image as write_image
    from kinema.rendering.files import write_video as write_video
    from kinema.rendering.options import RenderOptions as RenderOptions
    from kinema.rendering.render import render as render
    from kinema.rendering.render import surfaces_of as surfaces_of
    from kinema.rendering.softras import Soft as Soft
    from kinema.rendering.stages import Raster as Raster
    from kinema.rendering.stages import interpolate as interpolate
    from kinema.rendering.stages import rasterise as rasterise
    from kinema.rendering.stages import shade as shade
    from kinema.rendering.stages import vertex_normals as vertex_normals
    from kinema.rendering.surface import Lights as Lights
    from kinema.rendering.surface import Material as Material
    from kinema.rendering.surface import Surface as Surface
    from kinema.scene import shapes as shapes
    from kinema.scene.activation import Activation as Activation
    from kinema.scene.activation import Muscle as Muscle
    from kinema.scene.contact import Contact as Contact
    from kinema.scene.description import Actuator as Actuator
    from kinema.scene.description import Body as Body
    from kinema.scene.description import Closure as Closure
    from kinema.scene.description import Drag as Drag
    from kinema.scene.description import Joint as Joint
    from kinema.scene.description import MassProperties as MassProperties
    from kinema.scene.description import Mesh as Mesh
    from kinema.scene.description import Mimic as Mimic
    from kinema.scene.description import Pose as Pose
    from kinema.scene.description import Robot as Robot
    from kinema.scene.description import Shape as Shape
    from kinema.scene.description import Site as Site
    from kinema.scene.description import Tets as Tets
    from kinema.scene.drives import Motor as Motor
    from kinema.scene.drives import Servo as Servo
    from kinema.scene.drives import VelocityServo as VelocityServo
    from kinema.scene.handles import MatterHandle as MatterHandle
    from kinema.scene.handles import RobotHandle as RobotHandle
    from kinema.scene.io.meshes import read_obj as read_obj
    from kinema.scene.io.mjcf import read_mjcf as read_mjcf
    from kinema.scene.io.msh import read_msh as read_msh
    from kinema.scene.io.tetrahedralise import tetrahedralise as tetrahedralise
    from kinema.scene.io.urdf import read_urdf as read_urdf
    from kinema.scene.keyframes import Keyframe as Keyframe
    from kinema.scene.mass_properties import mass_properties as mass_properties
    from kinema.scene.mass_properties import quaternion as quaternion
    from kinema.scene.matter import Cloth as Cloth
    from kinema.scene.matter import Skin as Skin
    from kinema.scene.matter import Solid as Solid
    from kinema.scene.matter import Springs as Springs
    from kinema.scene.primitives import Box as Box
    from kinema.scene.primitives import Capsule as Capsule
    from kinema.scene.primitives import Cylinder as Cylinder
    from kinema.scene.primitives import Ellipsoid as Ellipsoid
    from kinema.scene.primitives import Hull as Hull
    from kinema.scene.primitives import Plane as Plane
    from kinema.scene.primitives import Sphere as Sphere
    from kinema.scene.scene import Scene as Scene
    from kinema.scene.softness import ContactPair as ContactPair
    from kinema.scene.softness import ContactSurface as ContactSurface
    from kinema.scene.softness import Softness as Softness
    from kinema.scene.tendons import Tendon as Tendon
    from kinema.simulation.control import Control as Control
    from kinema.simulation.linearise import Linearised as Linearised
    from kinema.simulation.linearise import linearise as linearise
    from kinema.simulation.robot_dynamics import body_jacobian as body_jacobian
    from kinema.simulation.robot_dynamics import centre_of_mass as centre_of_mass
    from kinema.simulation.robot_dynamics import forward_dynamics as forward_dynamics
    from kinema.simulation.robot_dynamics import forward_kinematics as forward_kinematics
    from kinema.simulation.robot_dynamics import inverse_dynamics as inverse_dynamics
    from kinema.simulation.robot_dynamics import kinetic_energy as kinetic_energy
    from kinema.simulation.robot_dynamics import mass_matrix as mass_matrix
    from kinema.simulation.robot_dynamics import momentum as momentum
    from kinema.simulation.robot_dynamics import potential_energy as potential_energy
    from kinema.simulation.simulate import simulate as simulate
    from kinema.simulation.simulate import step as step
    from kinema.simulation.smoke import SmokeBox as SmokeBox
    from kinema.simulation.smoke import SmokeState as SmokeState
    from kinema.simulation.smoke import SmokeTrajectory as SmokeTrajectory
    from kinema.simulation.smoke import simulate_smoke as simulate_smoke
    from kinema.simulation.trajectory import Trajectory as Trajectory
    from kinema.storage.objects import load as load
    from kinema.storage.objects import save as save

_HOME = {name: module for module, names in _API.items() for name in names}

__all__ = ["__version__", *_MODULES, *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'kinema' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
