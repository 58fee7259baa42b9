"""Arrays of transmissions: lengths that depend on the joints, of tendons and of what general actuators drive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kinema.errors import ModelError
from kinema.model.bends import BendArrays, Leg, bend_arrays, find_legs
from kinema.model.sites import SiteArrays
from kinema.model.tree import TreeArrays, path_of_link
from kinema.scene.description import Actuator, PlacedRobot
from kinema.scene.joint_types import SINGLE
from kinema.scene.names import closest, listed
from kinema.scene.tendons import Tendon
from kinema.scene.validate import GENERAL

UNBOUNDED = 1e30


@dataclass(eq=False)
class TransmissionArrays:
    """Transmissions: those of the tendons first, then one for every general actuator on a joint or a site.

    A transmission has an entry for every degree of freedom that moves it: the derivative of its length.

    Attributes:
        tendon_names: "robot/tendon".
        begin: First entry of each transmission, and the number of all entries.
        dof: Degree of freedom of each entry.
        linear: Transmissions that are linear in the coordinates.
        offset: Their lengths at zero coordinates.
        q: Coordinate of each entry; 0 in transmissions that are not linear.
        coefficient: Coefficient of each entry; 0 in transmissions that are not linear.
        site_transmission: Transmissions of sites.
        site: Their sites.
        wrench: Moment and force for a unit of force, in the axes of the site, shape (n, 6).
        path_transmission: Transmissions of tendons over sites.
        path_begin: The first point of each, and the number of all points.
        path_site: Site of each point.
        path_start: First place of each point in `path_entry`, and the number of all.
        path_entry: For each degree of freedom that moves a point, from the root on, the entry of the transmission.
        stiffness, damping, least_rest, most_rest: Of the tendons.
        actuator: Indices of the general actuators among all, without muscles.
        driven: Transmission of each.
        gain, bias: Shape (n, 3).
        least_force: Lower bound of the force [N m, N].
        muscle: Indices of the muscles among all actuators.
        pulled: Transmission of each muscle.
        curve: Numbers of `dynamics.muscles.Curve`, shape (m, 8).
        lengths: The shortest and the longest length [m, rad], shape (m, 2).
        least_pull: Lower bound of the force of muscles [N m, N].
        bends: Tendons with bends or pulleys.
    """

    tendon_names: list[str] = field(default_factory=list)
    begin: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    dof: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    linear: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    offset: np.ndarray = field(default_factory=lambda: np.zeros(0))
    q: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    coefficient: np.ndarray = field(default_factory=lambda: np.zeros(0))
    site_transmission: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    site: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    wrench: np.ndarray = field(default_factory=lambda: np.zeros((0, 6)))
    path_transmission: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    path_begin: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    path_site: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    path_start: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    path_entry: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    stiffness: np.ndarray = field(default_factory=lambda: np.zeros(0))
    damping: np.ndarray = field(default_factory=lambda: np.zeros(0))
    least_rest: np.ndarray = field(default_factory=lambda: np.zeros(0))
    most_rest: np.ndarray = field(default_factory=lambda: np.zeros(0))
    actuator: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    driven: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    gain: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    bias: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    least_force: np.ndarray = field(default_factory=lambda: np.zeros(0))
    muscle: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    pulled: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    curve: np.ndarray = field(default_factory=lambda: np.zeros((0, 8)))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    least_pull: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bends: BendArrays = field(default_factory=BendArrays)

    def __len__(self) -> int:
        return len(self.begin) - 1

    @property
    def elastic(self) -> bool:
        """Whether a tendon has a spring or a damper."""
        return bool(self.stiffness.any() or self.damping.any())

    @property
    def acting(self) -> bool:
        """Whether forces act along transmissions."""
        return self.elastic or len(self.actuator) > 0 or len(self.muscle) > 0

    def entries(self, transmission: int) -> slice:
        """The entries of a transmission."""
        return slice(int(self.begin[transmission]), int(self.begin[transmission + 1]))


def find_transmissions(tree: TreeArrays, sites: SiteArrays, placed: Sequence[PlacedRobot]) -> TransmissionArrays:
    """The transmissions of all robots.

    Raises:
        ModelError: A name is taken, or a joint, tendon or site does not exist.
    """
    builder = _Builder(tree, sites)
    for one in placed:
        for tendon in one.robot.tendons:
            builder.add_tendon(one.name, tendon)
    number = 0
    for one in placed:
        for actuator in one.robot.actuators:
            if actuator.kind == GENERAL:
                builder.add_actuator(one.name, within_effort(one, actuator), number)
            number += 1
    return builder.arrays()


def within_effort(one: PlacedRobot, actuator: Actuator) -> Actuator:
    """A general actuator whose bounds include the effort limit of the joint it drives, if it drives one."""
    efforts = [j.effort for body in one.robot.bodies for j in body.joints if j.name == actuator.joint]
    if not efforts or actuator.gear == 0:
        return actuator
    bound = min(efforts) / abs(actuator.gear)
    least = -actuator.force if actuator.least_force is None else actuator.least_force
    return replace(actuator, force=min(actuator.force, bound), least_force=max(least, -bound))


class _Builder:
    def __init__(self, tree: TreeArrays, sites: SiteArrays) -> None:
        self.tree, self.sites = tree, sites
        self.coordinate = tree.spring_coordinates()
        self.tendons: dict[str, Tendon] = {}
        self.entries: list[list[tuple[int, int, float]]] = []  # of each transmission: dof, q, coefficient
        self.offsets: dict[int, float] = {}  # of the linear ones
        self.on_sites: dict[int, tuple[int, tuple[float, ...]]] = {}
        self.paths: dict[int, list[int]] = {}  # sites of the tendons over sites
        self.bent: dict[int, list[Leg]] = {}  # legs of the tendons with bends or pulleys
        self.general: list[tuple[int, int, Actuator]] = []

    def add_tendon(self, robot: str, tendon: Tendon) -> None:
        name = f"{robot}/{tendon.name}"
        if name in self.tendons:
            raise ModelError(f"two tendons are called {name!r}")
        self.tendons[name] = tendon
        if tendon.sites:
            self._add_path(robot, name, tendon)
            return
        self.offsets[len(self.entries)] = tendon.offset
        why = f"tendon {name!r} goes over"
        self.entries.append([self._entry(f"{robot}/{joint}", why, c) for joint, c in tendon.joints])

    def _add_path(self, robot: str, name: str, tendon: Tendon) -> None:
        if tendon.straight:
            found = [self.sites.index(f"{robot}/{site}", f"tendon {name!r} goes over") for site in tendon.sites]
            self.paths[len(self.entries)] = found
            links = {int(self.sites.link[site]) for site in found}
        else:
            legs = find_legs(self.tree, self.sites, robot, name, tendon)
            self.bent[len(self.entries)] = legs
            links = {link for leg in legs for link in leg.links(self.sites)}
        dofs = {dof for link in links for dof in path_of_link(self.tree, link)}
        if not dofs:
            raise ModelError(f"tendon {name!r} connects only sites that do not move")
        self.entries.append([(dof, 0, 0.0) for dof in sorted(dofs)])

    def add_actuator(self, robot: str, actuator: Actuator, number: int) -> None:
        name = f"{robot}/{actuator.name}"
        if actuator.tendon:
            known = list(self.tendons)
            target = f"{robot}/{actuator.tendon}"
            if target not in self.tendons:
                what = f"actuator {name!r} pulls {target!r}, which does not exist"
                raise ModelError(what, expected=listed(known, "a robot with tendons"), fix=closest(target, known))
            self.general.append((number, known.index(target), actuator))
            return
        self.general.append((number, len(self.entries), actuator))
        if actuator.joint:
            self.offsets[len(self.entries)] = actuator.offset
            self.entries.append([self._entry(f"{robot}/{actuator.joint}", f"actuator {name!r} drives", 1.0)])
            return
        target, known = f"{robot}/{actuator.site}", self.sites.names
        if target not in known:
            what = f"actuator {name!r} acts at {target!r}, which does not exist"
            raise ModelError(what, expected=listed(known, "a robot with sites"), fix=closest(target, known))
        site = known.index(target)
        if self.sites.link[site] == 0:
            what = f"actuator {name!r} acts at {target!r}, which does not move"
            raise ModelError(what, fix="a site on a moving body")
        self.on_sites[len(self.entries)] = site, actuator.wrench
        self.entries.append([(dof, 0, 0.0) for dof in path_of_link(self.tree, int(self.sites.link[site]))])

    def _entry(self, joint: str, why: str, coefficient: float) -> tuple[int, int, float]:
        if joint not in self.tree.joints:
            expected = listed(self.tree.joints, "a robot with joints")
            raise ModelError(f"{why} {joint!r}, which does not move", expected=expected)
        i = self.tree.joints.index(joint)
        if not self.tree.types[i].is_single:
            raise ModelError(f"{why} {joint!r}", expected=f"a {' or '.join(SINGLE)} joint")
        dof = int(self.tree.v_start[i])
        return dof, int(self.coordinate[dof]), coefficient

    def arrays(self) -> TransmissionArrays:
        flat = [entry for entries in self.entries for entry in entries]
        tendons = list(self.tendons.values())
        general = [one for one in self.general if one[2].muscle is None]
        muscles = [one for one in self.general if one[2].muscle is not None]
        actuators = [one for _, _, one in general]
        begin = np.cumsum([0, *map(len, self.entries)])
        points: list[list[int]] = []
        for k, sites in self.paths.items():
            place = {dof: int(begin[k]) + e for e, (dof, _, _) in enumerate(self.entries[k])}
            links = (int(self.sites.link[site]) for site in sites)
            points += [[place[dof] for dof in path_of_link(self.tree, link)] for link in links]
        curves = [one.muscle for _, _, one in muscles if one.muscle is not None]
        return TransmissionArrays(
            tendon_names=list(self.tendons),
            begin=_ints(begin),
            dof=_ints(entry[0] for entry in flat),
            linear=_ints(self.offsets),
            offset=_reals(self.offsets.values()),
            q=_ints(entry[1] for entry in flat),
            coefficient=_reals(entry[2] for entry in flat),
            site_transmission=_ints(self.on_sites),
            site=_ints(site for site, _ in self.on_sites.values()),
            wrench=_reals(wrench for _, wrench in self.on_sites.values()).reshape(-1, 6),
            path_transmission=_ints(self.paths),
            path_begin=_ints(np.cumsum([0, *map(len, self.paths.values())])),
            path_site=_ints(site for sites in self.paths.values() for site in sites),
            path_start=_ints(np.cumsum([0, *map(len, points)])),
            path_entry=_ints(entry for point in points for entry in point),
            stiffness=_reals(one.stiffness for one in tendons),
            damping=_reals(one.damping for one in tendons),
            least_rest=_reals(one.rest[0] for one in tendons),
            most_rest=_reals(one.rest[1] for one in tendons),
            actuator=_ints(number for number, _, _ in general),
            driven=_ints(transmission for _, transmission, _ in general),
            gain=_reals(one.gain for one in actuators).reshape(-1, 3),
            bias=_reals(one.bias for one in actuators).reshape(-1, 3),
            least_force=_least_forces(general),
            muscle=_ints(number for number, _, _ in muscles),
            pulled=_ints(transmission for _, transmission, _ in muscles),
            curve=_reals((m.force, *m.range, m.lmin, m.lmax, m.vmax, m.fpmax, m.fvmax) for m in curves).reshape(-1, 8),
            lengths=_reals(m.lengths for m in curves).reshape(-1, 2),
            least_pull=_least_forces(muscles),
            bends=bend_arrays(self.tree, self.sites, self.bent, [int(b) for b in begin], _ints(e[0] for e in flat)),
        )


def _least_forces(found: list[tuple[int, int, Actuator]]) -> np.ndarray:
    least = [-one.force if one.least_force is None else one.least_force for _, _, one in found]
    return np.clip(_reals(least), -UNBOUNDED, UNBOUNDED)


def _ints(values: object) -> np.ndarray:
    return np.array(list(values), np.int32)  # type: ignore[call-overload]


def _reals(values: object) -> np.ndarray:
    return np.array(list(values), float)  # type: ignore[call-overload]
