"""Constant arrays of a scene, from which programs are built. Without torch, because programs ship compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kinema.model.activations import ActivationArrays, find_activations
from kinema.model.actuators import ActuatorArrays, find_actuators
from kinema.model.broad_phase import CandidateArrays, ShapeArrays, add_hulls, find_candidates, find_shapes
from kinema.model.constraints import ConstraintArrays, find_constraints
from kinema.model.forces import LawArrays, find_forces
from kinema.model.keyframes import KeyframeArrays, find_keyframes
from kinema.model.matter import MatterArrays, find_matter
from kinema.model.singular_masses import refuse_singular
from kinema.model.sites import SiteArrays, find_sites
from kinema.model.softness import SoftArrays, find_softness, override_friction
from kinema.model.transmissions import TransmissionArrays, find_transmissions
from kinema.model.tree import TreeArrays, build_tree
from kinema.model.visuals import VisualArrays, find_visuals
from kinema.scene.contact import Contact
from kinema.scene.scene import Scene

FIXED_IMPULSES, CONTACT_IMPULSES = "fixed_impulses", "contact_impulses"  # warm start state


class Precision(Protocol):
    """A floating-point dtype of torch or numpy."""

    @property
    def itemsize(self) -> int:
        """Bytes per number."""


@dataclass(frozen=True, eq=False)
class SceneArrays:
    """Arrays of a scene.

    Attributes:
        tree: Links, joints and bodies.
        gravity: [m/s^2], shape (3,).
        dtype: Precision in programs: double or single.
        contact: Contact law and solver.
        shapes: Colliding shapes.
        candidates: Contact candidates.
        constraints: Mimic joints, dry friction, limits and loops.
        actuators: Actuators.
        activations: States of actuators.
        sites: Frames on bodies whose motion can be recorded.
        matter: Soft matter.
        visuals: Rendered shapes.
        forces: User-defined force laws.
        transmissions: Tendons, and what general actuators drive.
        keyframes: Named states of robots.
        soft: Softness of constraints in the law "convex"; None in other laws.
    """

    tree: TreeArrays
    gravity: np.ndarray
    dtype: Precision
    contact: Contact
    shapes: ShapeArrays
    candidates: CandidateArrays
    constraints: ConstraintArrays
    actuators: ActuatorArrays
    activations: ActivationArrays
    sites: SiteArrays
    matter: MatterArrays
    visuals: VisualArrays
    forces: list[LawArrays]
    transmissions: TransmissionArrays
    keyframes: KeyframeArrays
    soft: SoftArrays | None

    @property
    def nq(self) -> int:
        """Number of generalised coordinates."""
        return self.tree.nq

    @property
    def nv(self) -> int:
        """Number of generalised velocities."""
        return self.tree.nv

    @property
    def bodies(self) -> list[str]:
        """Names of the bodies, "robot/body"."""
        return self.tree.bodies

    @property
    def joints(self) -> list[str]:
        """Names of the moving joints, "robot/joint"."""
        return self.tree.joints

    @property
    def prescribed(self) -> list[str]:
        """Names of the prescribed joints, in the order of `Control.motion`."""
        return [name for name, given in zip(self.tree.joints, self.tree.prescribed, strict=True) if given]

    @property
    def prescribed_velocities(self) -> int:
        """Number of velocities of prescribed joints."""
        return int(self.tree.dofs @ self.tree.prescribed)

    @property
    def reads_time(self) -> bool:
        """Whether a force depends on time."""
        return any(law.reads_time for law in self.forces)

    @property
    def hard_candidates(self) -> int:
        """Number of candidates of hard contact; 0 for compliant contact."""
        return len(self.candidates) if self.contact.hard else 0

    @property
    def kept_impulses(self) -> dict[str, int]:
        """Warm start impulses in the state: numbers of impulses of fixed rows, and of contact candidates."""
        if not self.contact.warm_start:
            return {}
        rows = self.constraints
        counts = {FIXED_IMPULSES: rows.singles + 3 * rows.equations, CONTACT_IMPULSES: 3 * self.hard_candidates}
        return {name: count for name, count in counts.items() if count}


def find_arrays(scene: Scene) -> SceneArrays:
    """Turn a scene into arrays: in double precision with joints, which are stiff, or without soft matter.

    Raises:
        ModelError: The scene is inconsistent; names the part and what to change.
    """
    placed = scene.robots
    tree = build_tree(placed)
    refuse_singular(tree)
    shapes, found = find_shapes(tree, placed, scene.ground, scene.contact)
    matter = find_matter(tree, scene.matter, scene.attachments, scene.wind)
    candidates = find_candidates(tree, shapes, found)
    if matter.touching.any():
        add_hulls(shapes, found)
    sites, actuators = find_sites(tree, placed), find_actuators(tree, placed)
    activations = find_activations(actuators, placed)
    constraints = find_constraints(tree, placed)
    soft = None
    if scene.contact.convex:
        soft = find_softness(tree, placed, shapes, found, candidates, constraints, scene.contact)
    else:
        override_friction(placed, shapes, found, candidates, scene.contact)
    return SceneArrays(
        tree,
        np.asarray(scene.gravity, float),
        np.dtype(np.float32 if scene.matter and not tree.nv else np.float64),
        scene.contact,
        shapes,
        candidates,
        constraints,
        actuators,
        activations,
        sites,
        matter,
        find_visuals(tree, placed, scene.ground, shapes),
        find_forces(tree, sites, matter, scene.forces),
        find_transmissions(tree, sites, placed),
        find_keyframes(tree, actuators, activations, placed),
        soft,
    )
