"""A scene in arrays that do not change: what programs are made of. Knows no torch, as programs are shipped compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kinema.model.actuators import ActuatorArrays, find_actuators
from kinema.model.broad_phase import CandidateArrays, ShapeArrays, add_hulls, find_candidates, find_shapes
from kinema.model.constraints import ConstraintArrays, find_constraints
from kinema.model.forces import LawArrays, find_forces
from kinema.model.matter import MatterArrays, find_matter
from kinema.model.sites import SiteArrays, find_sites
from kinema.model.tree import TreeArrays, build_tree
from kinema.model.visuals import VisualArrays, find_visuals
from kinema.scene.scene import Contact, Scene

FIXED_IMPULSES, CONTACT_IMPULSES = "fixed_impulses", "contact_impulses"  # state of a warm start


class Precision(Protocol):
    """A type of numbers, torch's or numpy's."""

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""


@dataclass(frozen=True, eq=False)
class SceneArrays:
    """Arrays of a scene.

    Attributes:
        tree: Links, joints and bodies.
        gravity: [m/s^2], shape (3,).
        dtype: Of its numbers in programs: of 8 or of 4 bytes.
        contact: How things touch.
        shapes: Shapes that collide.
        candidates: Places where they may touch.
        constraints: Followers, dry friction, limits and loops.
        actuators: What controls drive.
        sites: Frames on bodies whose motion can be recorded.
        matter: All that is soft.
        visuals: What links look like.
        forces: Laws of force of the user's own.
    """

    tree: TreeArrays
    gravity: np.ndarray
    dtype: Precision
    contact: Contact
    shapes: ShapeArrays
    candidates: CandidateArrays
    constraints: ConstraintArrays
    actuators: ActuatorArrays
    sites: SiteArrays
    matter: MatterArrays
    visuals: VisualArrays
    forces: list[LawArrays]

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.tree.nq

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return self.tree.nv

    @property
    def bodies(self) -> list[str]:
        """Names of the bodies, "robot/body"."""
        return self.tree.bodies

    @property
    def joints(self) -> list[str]:
        """Names of the joints that move, "robot/joint"."""
        return self.tree.joints

    @property
    def prescribed(self) -> list[str]:
        """Names of the joints whose motion is given, in the order of `Control.motion`."""
        return [name for name, given in zip(self.tree.joints, self.tree.prescribed, strict=True) if given]

    @property
    def prescribed_velocities(self) -> int:
        """Number of their velocities."""
        return int(self.tree.dofs @ self.tree.prescribed)

    @property
    def reads_time(self) -> bool:
        """Whether a force depends on time."""
        return any(law.reads_time for law in self.forces)

    @property
    def hard_candidates(self) -> int:
        """Number of places where hard contacts may be; 0 if contacts are compliant."""
        return len(self.candidates) if self.contact.hard else 0

    @property
    def kept_impulses(self) -> dict[str, int]:
        """What a warm start adds to the state: numbers of impulses of fixed rows, and of all candidates."""
        if not self.contact.warm_start:
            return {}
        rows = self.constraints
        counts = {FIXED_IMPULSES: rows.singles + 3 * rows.equations, CONTACT_IMPULSES: 3 * self.hard_candidates}
        return {name: count for name, count in counts.items() if count}


def find_arrays(scene: Scene) -> SceneArrays:
    """Turn a scene into arrays, in double precision if anything has joints, which are stiff, or nothing is soft.

    Raises:
        ModelError: The scene does not fit together; says which part and what to change.
    """
    placed = scene.robots
    tree = build_tree(placed)
    shapes, found = find_shapes(tree, placed, scene.ground, scene.contact)
    matter = find_matter(tree, scene.matter, scene.attachments, scene.wind)
    candidates = find_candidates(tree, shapes, found)
    if matter.touching.any():
        add_hulls(shapes, found)
    sites = find_sites(tree, placed)
    return SceneArrays(
        tree,
        np.asarray(scene.gravity, float),
        np.dtype(np.float32 if scene.matter and not tree.nv else np.float64),
        scene.contact,
        shapes,
        candidates,
        find_constraints(tree, placed),
        find_actuators(tree, placed),
        sites,
        matter,
        find_visuals(tree, placed, scene.ground, shapes),
        find_forces(tree, sites, matter, scene.forces),
    )
