"""The table of shape pairs: which kinds of shapes collide, with which kernel, and with how many contact candidates.

The two kinds of a pair are in the order of the kernel's first and second shape. To add a pair, write a kernel in a file
of this folder and add a line to `PAIRS`; detection, files and `kinema check` read the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinema.contact.collision.box_box import BOX_CANDIDATES, touch_box_box
from kinema.contact.collision.capsule_hull import touch_capsule_hull
from kinema.contact.collision.ellipsoids import (
    touch_ellipsoid_ellipsoid,
    touch_ellipsoid_hull,
    touch_ellipsoid_plane,
    touch_ellipsoid_round,
)
from kinema.contact.collision.hull_hull import HULL_CANDIDATES, touch_hull_hull
from kinema.contact.collision.hulls import PLANE_CANDIDATES, low_corners, touch_hull_plane, touch_sphere_hull
from kinema.contact.collision.planes import (
    touch_box_plane,
    touch_capsule_plane,
    touch_cylinder_plane,
    touch_sphere_plane,
)
from kinema.contact.collision.sphere_capsule import touch_capsule_capsule, touch_sphere_round
from kinema.contact.collision.sphere_capsule_box import touch_capsule_box, touch_sphere_box
from kinema.contact.collision.terrain import touch_ball_terrain, touch_corner_terrain
from kinema.lang import Kernel
from kinema.scene.description import BOX, CAPSULE, CYLINDER, ELLIPSOID, MESH, PLANE, SPHERE, TERRAIN


@dataclass(frozen=True)
class Family:
    """Pairs of shapes that one kernel collides.

    Attributes:
        kernel: `touch_...(shapes, pairs, <tables>, R, p, margin, touch)`; it writes all candidates of every pair.
        candidates: Contact candidates per pair; on terrain, per round point of the first shape.
        hulls: Whether the kernel takes the table `Hulls`.
        terrain: Whether the kernel takes the tables `Knobs` and `Terrain`; all its pairs share one terrain.
        search: A kernel with the same arguments except `touch` that finds `candidates` feature indices per pair, for
            differentiated kernels without a search of their own; these take the indices instead of the margin.
    """

    kernel: Kernel
    candidates: int
    hulls: bool = False
    terrain: bool = False
    search: Kernel | None = None

    @property
    def name(self) -> str:
        """The kernel's name without "touch_"."""
        return self.kernel.name.removeprefix("touch_")


_SPHERE_ROUND = Family(touch_sphere_round, 1)
_SPHERE_HULL = Family(touch_sphere_hull, 1, hulls=True)
_CAPSULE_HULL = Family(touch_capsule_hull, 2, hulls=True)
_HULL_HULL = Family(touch_hull_hull, HULL_CANDIDATES, hulls=True)
_ELLIPSOID_ROUND = Family(touch_ellipsoid_round, 1)
_ELLIPSOID_HULL = Family(touch_ellipsoid_hull, 1, hulls=True)
_BALL_TERRAIN = Family(touch_ball_terrain, 2, terrain=True)
_CORNER_TERRAIN = Family(touch_corner_terrain, 1, terrain=True)

PAIRS = {
    (SPHERE, PLANE): Family(touch_sphere_plane, 1),
    (CAPSULE, PLANE): Family(touch_capsule_plane, 2),
    (BOX, PLANE): Family(touch_box_plane, 4),
    (CYLINDER, PLANE): Family(touch_cylinder_plane, 4),
    (MESH, PLANE): Family(touch_hull_plane, PLANE_CANDIDATES, hulls=True, search=low_corners),
    (SPHERE, SPHERE): _SPHERE_ROUND,
    (SPHERE, CAPSULE): _SPHERE_ROUND,
    (CAPSULE, CAPSULE): Family(touch_capsule_capsule, 2),
    (SPHERE, BOX): Family(touch_sphere_box, 1),
    (CAPSULE, BOX): Family(touch_capsule_box, 2),
    (BOX, BOX): Family(touch_box_box, BOX_CANDIDATES),
    (SPHERE, MESH): _SPHERE_HULL,
    (SPHERE, CYLINDER): _SPHERE_HULL,
    (CAPSULE, MESH): _CAPSULE_HULL,
    (CAPSULE, CYLINDER): _CAPSULE_HULL,
    (BOX, MESH): _HULL_HULL,
    (BOX, CYLINDER): _HULL_HULL,
    (CYLINDER, MESH): _HULL_HULL,
    (CYLINDER, CYLINDER): _HULL_HULL,
    (MESH, MESH): _HULL_HULL,
    (ELLIPSOID, PLANE): Family(touch_ellipsoid_plane, 1),
    (ELLIPSOID, SPHERE): _ELLIPSOID_ROUND,
    (ELLIPSOID, CAPSULE): _ELLIPSOID_ROUND,
    (ELLIPSOID, ELLIPSOID): Family(touch_ellipsoid_ellipsoid, 1),
    (ELLIPSOID, BOX): _ELLIPSOID_HULL,
    (ELLIPSOID, CYLINDER): _ELLIPSOID_HULL,
    (ELLIPSOID, MESH): _ELLIPSOID_HULL,
    (SPHERE, TERRAIN): _BALL_TERRAIN,
    (CAPSULE, TERRAIN): _BALL_TERRAIN,
    (BOX, TERRAIN): _CORNER_TERRAIN,
    (CYLINDER, TERRAIN): _CORNER_TERRAIN,
    (MESH, TERRAIN): _CORNER_TERRAIN,
}
"""The family of each pair of shape kinds that collide."""

FAMILIES = {family.name: family for family in PAIRS.values()}
