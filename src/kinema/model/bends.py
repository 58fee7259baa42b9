"""Arrays of tendons that bend around geoms or run over pulleys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema.errors import ModelError
from kinema.model.sites import SiteArrays
from kinema.model.tree import TreeArrays, path_of_link
from kinema.scene.description import rotation_matrix
from kinema.scene.names import closest, listed
from kinema.scene.tendons import Pulley, Tendon, Wrap


@dataclass(frozen=True)
class Leg:
    """A part of a tendon between two sites.

    Attributes:
        sites: Both ends.
        link: Link of the geom between them; -1 for none.
        place, axes: Its pose on the link [m, -].
        radius: [m]
        cylinder: Whether it is a cylinder.
        side: Its side site, or -1.
        share: One over the divisor of the pulley before.
    """

    sites: tuple[int, int]
    link: int
    place: np.ndarray
    axes: np.ndarray
    radius: float
    cylinder: bool
    side: int
    share: float

    def links(self, sites: SiteArrays) -> list[int]:
        """Links that move its length."""
        return [*(int(sites.link[site]) for site in self.sites), max(self.link, 0)]


@dataclass(eq=False)
class BendArrays:
    """Arrays of `dynamics.wrapping.Legs`, and of `Ends` with the prefix "end".

    Attributes:
        end_site: Site of each end; -1 for geoms.
    """

    transmission: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    begin: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    first: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    second: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    around: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    side: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    axes: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    radius: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cylinder: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    share: np.ndarray = field(default_factory=lambda: np.zeros(0))
    end_site: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    end_link: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    end_place: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    end_start: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    end_entry: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.transmission)


def find_legs(tree: TreeArrays, sites: SiteArrays, robot: str, name: str, tendon: Tendon) -> list[Leg]:
    """The legs of a tendon, called `name` in messages.

    Raises:
        ModelError: A site or a body does not exist.
    """
    why, share, found = f"tendon {name!r} goes over", 1.0, []
    before: list[str] = []
    wrap: Wrap | None = None
    for one in tendon.sites:
        if isinstance(one, Pulley):
            share, before = 1.0 / one.divisor, []
        elif isinstance(one, Wrap):
            wrap = one
        else:
            for last in before:
                ends = sites.index(f"{robot}/{last}", why), sites.index(f"{robot}/{one}", why)
                found.append(_leg(tree, sites, robot, why, ends, wrap, share))
            before, wrap = [one], None
    return found


def _leg(
    tree: TreeArrays, sites: SiteArrays, robot: str, why: str, ends: tuple[int, int], wrap: Wrap | None, share: float
) -> Leg:
    if wrap is None:
        return Leg(ends, -1, np.zeros(3), np.eye(3), 0.0, False, -1, share)
    body = f"{robot}/{wrap.body}"
    if body not in tree.bodies:
        expected, fix = listed(tree.bodies), closest(body, tree.bodies)
        raise ModelError(f"{why} a geom of body {body!r}, which does not exist", expected=expected, fix=fix)
    b = tree.bodies.index(body)
    R = tree.body_rotation[b]
    place, axes = tree.body_offset[b] + R @ np.asarray(wrap.position), R @ rotation_matrix(wrap.rotation)
    side = sites.index(f"{robot}/{wrap.side}", why) if wrap.side else -1
    return Leg(ends, int(tree.body_link[b]), place, axes, wrap.radius, wrap.cylinder, side, share)


def bend_arrays(
    tree: TreeArrays, sites: SiteArrays, legs: Mapping[int, Sequence[Leg]], begin: Sequence[int], dof: np.ndarray
) -> BendArrays:
    """Arrays of the legs of tendons, by transmission.

    Args:
        tree: Links.
        sites: Sites.
        legs: Legs by transmission.
        begin: See `TransmissionArrays`.
        dof: Likewise.
    """
    ends: list[tuple[int, int, np.ndarray]] = []  # site, link, place
    entries: list[list[int]] = []
    rows: dict[str, list[int]] = {name: [] for name in ("first", "second", "around", "side")}
    for k, parts in legs.items():
        place = {int(d): begin[k] + e for e, d in enumerate(dof[begin[k] : begin[k + 1]])}
        for leg in parts:
            given = {"first": leg.sites[0], "second": leg.sites[1], "side": leg.side}
            for name, site in given.items():
                rows[name].append(len(ends) if site >= 0 else -1)
                if site >= 0:
                    link = int(sites.link[site])
                    ends.append((site, link, np.zeros(3)))
                    entries.append([] if name == "side" else [place[d] for d in path_of_link(tree, link)])
            rows["around"].append(len(ends) if leg.link >= 0 else -1)
            if leg.link >= 0:
                ends.append((-1, leg.link, leg.place))
                entries.append([place[d] for d in path_of_link(tree, leg.link)])
    flat = [leg for parts in legs.values() for leg in parts]
    return BendArrays(
        np.array(list(legs), np.int32),
        np.cumsum([0, *map(len, legs.values())]).astype(np.int32),
        **{name: np.array(numbers, np.int32) for name, numbers in rows.items()},
        axes=np.array([leg.axes for leg in flat], float).reshape(-1, 3, 3),
        radius=np.array([leg.radius for leg in flat], float),
        cylinder=np.array([leg.cylinder for leg in flat], np.int32),
        share=np.array([leg.share for leg in flat], float),
        end_site=np.array([end[0] for end in ends], np.int32),
        end_link=np.array([end[1] for end in ends], np.int32),
        end_place=np.array([end[2] for end in ends], float).reshape(-1, 3),
        end_start=np.cumsum([0, *map(len, entries)]).astype(np.int32),
        end_entry=np.array([e for entry in entries for e in entry], np.int32),
    )
