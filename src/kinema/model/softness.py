"""Constraints of the law "convex" as arrays: softness, surfaces, and the inverse weights that scale them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinema.contact.collision.pair_table import FAMILIES
from kinema.errors import ModelError
from kinema.model.broad_phase import CandidateArrays, Found, ShapeArrays
from kinema.model.constraints import ConstraintArrays
from kinema.model.inverse_weights import inverse_weights
from kinema.model.tree import TreeArrays
from kinema.scene.contact import CONVEX, MLCP, Contact
from kinema.scene.description import CAPSULE, PLANE, Closure, Joint, PlacedRobot
from kinema.scene.softness import ContactPair, ContactSurface, Softness

SLIP = 1e-5  # least coefficient of friction, as in MuJoCo
SOLMIX = 1e-15  # weights below it count as zero
OF_LAW = {"solref": (2,), "solimp": (5,)}


@dataclass(eq=False)
class SoftArrays:
    """Arrays of the law "convex".

    Attributes:
        numbers: Learnable arrays by name: of contact candidates friction_solref, solref, solimp, torsional, rolling; of
            limits, dry friction, mimic joints and loops limit_solref, limit_solimp, dry_..., mimic_..., loop_....
        owners: Names of their rows.
        condim: Of each candidate.
        margin: Distance at which each candidate becomes a contact [m].
        ratio: Of each candidate, the second over the first coefficient of sliding friction, and of rolling friction.
        weight: Inverse weights of each candidate, translation and rotation, shape (n, 2).
        along: Of each candidate, the direction of the first tangent in its first link; zero for the default.
        limit_margin: Distance at which each limit acts [rad, m].
        limit_weight, dry_weight, mimic_weight: Inverse weights.
        loop_weight: Inverse weights of each loop, translation and rotation, shape (n, 2).
        torque_scale: Of each loop [m].
        welded: Whether any loop is a weld.
    """

    numbers: dict[str, np.ndarray]
    owners: dict[str, list[str]]
    condim: np.ndarray
    margin: np.ndarray
    ratio: np.ndarray
    weight: np.ndarray
    along: np.ndarray
    limit_margin: np.ndarray
    limit_weight: np.ndarray
    dry_weight: np.ndarray
    mimic_weight: np.ndarray
    loop_weight: np.ndarray
    torque_scale: np.ndarray
    welded: bool

    @property
    def turns(self) -> bool:
        """Whether contacts or loops exert moments about their points."""
        return bool((self.condim > 3).any() or self.welded)

    @property
    def reach(self) -> float:
        """The largest margin of a candidate [m]."""
        return float(self.margin.max(initial=0.0))


def find_softness(
    tree: TreeArrays,
    placed: Sequence[PlacedRobot],
    shapes: ShapeArrays,
    found: Sequence[Found],
    candidates: CandidateArrays,
    constraints: ConstraintArrays,
    contact: Contact,
) -> SoftArrays:
    """The arrays of the law "convex"; replaces the coefficients of friction of the candidates by MuJoCo's.

    Raises:
        ModelError: A contact pair names a shape that does not exist, or a joint is prescribed.
    """
    if tree.prescribed.any():
        joint, fix = (
            tree.joints[int(tree.prescribed.argmax())],
            "Contact(law='mlcp'), or drive the joint with a stiff servo",
        )
        raise ModelError("the law 'convex' has no prescribed joints", got=f"joint {joint!r} is prescribed", fix=fix)
    if constraints.stop_names:
        what = f"tendon {constraints.stop_names[0]!r} has limits, which the law {CONVEX!r} does not know"
        raise ModelError(what, fix=f"Contact(law={MLCP!r}), or remove the limits")
    bodies, dofs = inverse_weights(tree)
    touching = _touching(candidates)
    pairs = _pairs(placed, shapes)
    merged = {pair: _merge(found, shapes, contact, pairs, *pair) for pair in dict.fromkeys(touching)}
    each = [merged[pair] for pair in touching]
    friction = np.maximum(np.array([one.friction for one in each]).reshape(-1, 5), SLIP)
    candidates.friction = friction[:, 0]
    joints = {f"{one.name}/{j.name}": j for one in placed for body in one.robot.bodies for j in body.joints}
    closures = {f"{one.name}/{c.name}": (one.name, c) for one in placed for c in one.robot.closures}
    loops = [closures[name] for name in constraints.loop_names]
    numbers = _contact_numbers(each, friction)
    owners = dict.fromkeys(numbers, candidates.names)
    for prefix, names, rows in _single_softness(constraints, joints, loops, contact):
        for name, values in _softness_numbers(rows).items():
            numbers[f"{prefix}_{name}"], owners[f"{prefix}_{name}"] = values, names
    number = {name: i for i, name in enumerate(tree.bodies)}
    of_shape = [_body_of(one, number) for one in found]
    followers = constraints.followers
    return SoftArrays(
        numbers,
        owners,
        np.array([one.condim for one in each], np.int32),
        np.array([one.margin for one in each], float),
        np.stack([friction[:, 1] / friction[:, 0], friction[:, 4] / friction[:, 3]], 1),
        _sums(bodies, ((of_shape[a], of_shape[b]) for a, b in touching)),
        _capsule_axes(shapes, candidates, touching),
        np.array([joints[name].limit_margin for name in constraints.limit_names], float),
        dofs[constraints.limits["dof"]],
        dofs[constraints.rubbing["dof"]],
        dofs[followers["dof"]] + dofs[followers["leader"]],
        _sums(bodies, ([number.get(f"{name}/{end}") for end in (c.first, c.second)] for name, c in loops)),
        np.array([c.torque_scale for _, c in loops], float),
        bool(constraints.loops["welded"].any()),
    )


def override_friction(
    placed: Sequence[PlacedRobot],
    shapes: ShapeArrays,
    found: Sequence[Found],
    candidates: CandidateArrays,
    contact: Contact,
) -> None:
    """Friction in other laws: contact pairs replace the coefficient; shapes with a surface mix it as in MuJoCo."""
    pairs = _pairs(placed, shapes)
    mixed: dict[tuple[int, int], float] = {}
    for c, ends in enumerate(_touching(candidates) if pairs or any(one.shape.surface for one in found) else ()):
        if ends not in mixed:
            mixed[ends] = _friction(found, contact, pairs.get(frozenset(ends)), *ends)
        candidates.friction[c] = mixed[ends]


def _friction(found: Sequence[Found], contact: Contact, pair: ContactPair | None, a: int, b: int) -> float:
    """The coefficient of sliding friction of two shapes; 0 without rows of friction."""
    if pair is not None:
        return pair.friction[0] if pair.condim > 1 else 0.0
    given = [found[i].shape.friction for i in (a, b)]
    mine = [contact.friction if mu is None else float(mu) for mu in given]
    if found[a].shape.surface is None and found[b].shape.surface is None:
        return min(mine)
    one, two = (_surface(found[i], contact) for i in (a, b))
    if one.priority != two.priority:
        chosen, friction = (one, mine[0]) if one.priority > two.priority else (two, mine[1])
        return friction if chosen.condim > 1 else 0.0
    return max(mine) if max(one.condim, two.condim) > 1 else 0.0


def _touching(candidates: CandidateArrays) -> list[tuple[int, int]]:
    """The two shapes of every candidate."""
    out = [(0, 0)] * len(candidates)
    for name, table in candidates.pairs.items():
        count = FAMILIES[name.partition(" ")[0]].candidates
        for a, b, start in zip(table["first"], table["second"], table["start"], strict=True):
            out[start : start + count] = [(int(a), int(b))] * count
    return out


def _pairs(placed: Sequence[PlacedRobot], shapes: ShapeArrays) -> dict[frozenset[int], ContactPair]:
    number = {name: i for i, name in enumerate(shapes.names)}
    out = {}
    for one in placed:
        for pair in one.robot.pairs:
            names = [f"{one.name}/{end}" for end in (pair.first, pair.second)]
            missing = [name for name in names if name not in number]
            if missing:
                what = f"there is no colliding shape {missing[0]!r}, which a contact pair names"
                raise ModelError(what, expected=", ".join(shapes.names) or "colliding shapes")
            out[frozenset(number[name] for name in names)] = pair
    return out


def _merge(
    found: Sequence[Found],
    shapes: ShapeArrays,
    contact: Contact,
    pairs: Mapping[frozenset[int], ContactPair],
    a: int,
    b: int,
) -> ContactPair:
    """Contact parameters of two shapes [MuJoCo, Contact parameters]."""
    if frozenset((a, b)) in pairs:
        return pairs[frozenset((a, b))]
    names = shapes.names[a], shapes.names[b]
    one, two = (_surface(found[i], contact) for i in (a, b))
    margin = one.margin + two.margin
    mine = [(float(shapes.friction[i]), s.torsional, s.rolling) for i, s in ((a, one), (b, two))]
    if one.priority != two.priority:
        chosen, (slide, spin, roll) = (one, mine[0]) if one.priority > two.priority else (two, mine[1])
        friction = (slide, slide, spin, roll, roll)
        return ContactPair(*names, friction, chosen.softness, condim=chosen.condim, margin=margin)
    slide, spin, roll = (max(x, y) for x, y in zip(*mine, strict=True))
    condim = max(one.condim, two.condim)
    return ContactPair(*names, (slide, slide, spin, roll, roll), _mixed(one, two), condim=condim, margin=margin)


def _surface(found: Found, contact: Contact) -> ContactSurface:
    return found.shape.surface or contact.surface


def _mixed(one: ContactSurface, two: ContactSurface) -> Softness:
    small = one.solmix < SOLMIX, two.solmix < SOLMIX
    share = 1.0 - float(small[0]) if any(small) else one.solmix / (one.solmix + two.solmix)
    share = 0.5 if all(small) else share

    def mix(x: Sequence[float], y: Sequence[float]) -> tuple[float, ...]:
        return tuple(share * a + (1 - share) * b for a, b in zip(x, y, strict=True))

    first, second = one.softness, two.softness
    solref = mix(first.solref, second.solref)
    if not (first.solref[0] > 0 and second.solref[0] > 0):
        solref = tuple(min(a, b) for a, b in zip(first.solref, second.solref, strict=True))
    return Softness(solref, mix(first.solimp, second.solimp))  # type: ignore[arg-type]


def _contact_numbers(each: Sequence[ContactPair], friction: np.ndarray) -> dict[str, np.ndarray]:
    sliding = np.array([one.friction_solref for one in each]).reshape(-1, 2)
    numbers = {"friction_solref": sliding, "torsional": friction[:, 2], "rolling": friction[:, 3]}
    return numbers | _softness_numbers([one.softness for one in each])


def _softness_numbers(rows: Iterable[Softness]) -> dict[str, np.ndarray]:
    kept = list(rows)
    return {name: np.array([getattr(one, name) for one in kept]).reshape(-1, *shape) for name, shape in OF_LAW.items()}


def _single_softness(
    constraints: ConstraintArrays,
    joints: Mapping[str, Joint],
    loops: Sequence[tuple[str, Closure]],
    contact: Contact,
) -> list[tuple[str, list[str], list[Softness]]]:
    """Softness of all constraints but contacts: prefix of the arrays, owners, one for each owner."""
    default = contact.softness
    limits, rubbing, followers = constraints.limit_names, constraints.rubbing_names, constraints.follower_names
    mimics = [joints[name].mimic for name in followers]
    return [
        ("limit", limits, [joints[name].limit_softness or default for name in limits]),
        ("dry", rubbing, [joints[name].friction_softness or default for name in rubbing]),
        ("mimic", followers, [(m.softness if m is not None else None) or default for m in mimics]),
        ("loop", constraints.loop_names, [closure.softness or default for _, closure in loops]),
    ]


def _body_of(found: Found, number: Mapping[str, int]) -> int | None:
    return None if found.robot is None else number[f"{found.robot.name}/{found.body}"]


def _sums(weights: np.ndarray, ends: Iterable[Iterable[int | None]]) -> np.ndarray:
    """Sums of the inverse weights of two bodies each; None is the world."""
    return np.array([sum((weights[b] for b in both if b is not None), np.zeros(2)) for both in ends]).reshape(-1, 2)


def _capsule_axes(shapes: ShapeArrays, candidates: CandidateArrays, touching: Sequence[tuple[int, int]]) -> np.ndarray:
    """Axes of capsules on planes, in their links: the first tangents of their contacts."""
    out = np.zeros((len(candidates), 3))
    for c, (a, b) in enumerate(touching):
        if (shapes.kind[a], shapes.kind[b]) == (CAPSULE, PLANE):
            out[c] = shapes.rotation[a][:, 2]
    return out
