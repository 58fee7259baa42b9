"""All scenes of the benchmark, and those of a quick run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import kinema as kn

from . import bodies, files, hands
from .scenes import Pair, Spec, of_robot

SIZES = (10, 100, 1_000)
BATCH_OF, BATCH = "humanoid", 64
LIMITED, FREE = "chain 1000, one limit", "chain 1000"
QUICK = ("hopper", "humanoid", "allegro-like", "10 spheres piled", "10 boxes apart")


def specs() -> Iterator[Spec]:
    """All scenes whose files are installed, small ones first."""
    yield from files.specs()
    yield Spec("procedural humanoid", "legged", _humanoid)
    yield Spec("allegro-like", "hand", partial(_hand, "allegro-like", hands.ALLEGRO, 0.012, False))
    yield Spec("shadow-like", "hand", partial(_hand, "shadow-like", hands.SHADOW, 0.009, True))
    for kind, plural in (("sphere", "spheres"), ("box", "boxes")):
        for apart in (False, True):
            for count in SIZES:
                yield Spec(
                    f"{count} {plural} {'apart' if apart else 'piled'}",
                    "apart" if apart else "pile",
                    partial(bodies.heap, kind, count, apart),
                    steps={10: 200, 100: 50, 1_000: 10}[count],
                    solvers=("Newton", "CG", "PGS"),
                    differentiate=count < 100,
                )
    for name, limited in ((FREE, False), (LIMITED, True)):
        chain = partial(bodies.chain, 1_000, limited)
        yield Spec(name, "chain", chain, steps=10, solvers=("Newton", "CG"), differentiate=False)


def _humanoid() -> Pair:
    robot = kn.shapes.humanoid()
    return of_robot(robot, {}, True, None)


def _hand(name: str, fingers: tuple[hands.Finger, ...], radius: float, wrist: bool) -> Pair:
    robot = hands.hand(name, fingers, radius, wrist)
    return of_robot(robot, hands.rest(robot), False, hands.ball)
