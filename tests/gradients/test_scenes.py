"""Finite steps have finite gradients: random scenes of everything, in singular states."""

from __future__ import annotations

import pytest

from kinema.lang.build import compiler
from kinema.verification import random_matter
from kinema.verification.random_scenes import KINDS, TOUCHING, Outcome, try_scenes

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


def test_finite_steps_have_finite_gradients():
    """504 scenes: 20 rigid structures and 4 with soft things, of 21 worlds; to states, controls and every parameter.

    Worlds come in threes: fewer than share a register, so that the kernels are those of single worlds, which other
    tests compile, too. Nothing depends on it to the last bit; `kinema verify` runs twenty at once.
    """
    seen = Outcome()
    for seed in range(20):
        try_scenes(seed, 3 * len(KINDS), seen, together=3)
    for seed in range(4):
        random_matter.try_matter(seed, 3 * len(random_matter.KINDS), seen, together=3)
    print(seen)
    assert seen.scenes == 504 and seen.finite == seen.scenes
    assert seen.touching >= TOUCHING * seen.scenes and seen.limited >= 0.1 * seen.scenes, seen
    assert not seen.wrong, "\n".join(seen.wrong)


@pytest.mark.parametrize("seed", [90, 185])
def test_rows_that_nothing_can_move_have_no_impulse(seed: int):
    """Welded loops between bodies that are not free to part, with cfm = 0 in some of the worlds: A_ii = 0."""
    seen = Outcome()
    try_scenes(seed, 3 * len(KINDS), seen, together=3)
    assert seen.finite == seen.scenes and not seen.wrong, seen
