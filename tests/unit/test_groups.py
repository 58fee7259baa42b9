"""Groups of constraints that share nothing with each other."""

from __future__ import annotations

import numpy as np
import pytest

from kinema.model.constraints import find_groups, group_tables


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_the_connected_parts(seed: int):
    random = np.random.default_rng(seed)
    lists = [random.choice(60, random.integers(1, 4), replace=False).tolist() for _ in range(15)]
    met = np.array([[bool(set(a) & set(b)) for b in lists] for a in lists])
    reached = np.linalg.matrix_power(met.astype(int), len(lists)) > 0  # by a way of at most as many blocks
    found = find_groups(lists)
    assert len(found) > 1
    assert found == [np.flatnonzero(row).tolist() for i, row in enumerate(reached) if not row[:i].any()]


def test_rows_of_groups_by_hand():
    """Two single rows, an equation and a contact; the second row and the contact are apart from the others."""
    groups = find_groups([[0], [5, 6], [0, 1, 2], [6, 7]])
    assert groups == [[0, 2], [1, 3]]
    table = {name: x.tolist() for name, x in group_tables(groups, singles=2, equations=1).items()}
    assert table["row"] == [0, 2, 3, 4, 1, 5, 6, 7] and table["start"] == [0, 4, 8] and table["matrix"] == [0, 16]
    assert table["singles"] == [1, 1] and table["equations"] == [1, 0] and table["largest"] == 4
