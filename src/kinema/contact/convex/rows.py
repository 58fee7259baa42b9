"""Where the rows of soft constraints are, and their numbers; a constraint acts where its distance r is negative.

Rows come as in `constraint_rows`: single rows, three for each equation, and `span` for each contact. A single row
pushes with a force between a lower and an upper bound; see `cones` for contacts.
"""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Supports
from kinema.contact.convex.impedance import Impedance
from kinema.lang import Array, Float, Int, func, record, vec2


@record
class Where:
    """Where the rows of a step are.

    supports: Degrees of freedom of each support.
    support: Support of each single row, equation and contact.
    singles: Number of single rows.
    equations: Number of equations, three rows each.
    triples: Number of equations and contacts.
    """

    supports: Supports
    support: Array[Int]
    singles: Int
    equations: Int
    triples: Array[Int]


@record
class Stiff:
    """Softness of constraints of one kind.

    solref, solimp: See `impedance`.
    weight: Inverse weight of each constraint.
    """

    solref: Array[vec2]
    solimp: Array[Impedance]
    weight: Array[Float]


@record
class SoftRows:
    """Numbers of all rows.

    J: Jacobians.
    reference: Reference accelerations.
    D: 1 / R; zero for rows that do not act.
    lower, upper: Bounds of the forces of single rows.
    """

    J: Array[Float]
    reference: Array[Float]
    D: Array[Float]
    lower: Array[Float]
    upper: Array[Float]


@func
def contact_row(where, c, span):
    """Index of the first row of a contact."""
    return where.singles + 3 * where.equations + span * c


@func
def speed_of(where, block, r, J, v):
    """J v of a row."""
    supports, found = where.supports, 0.0
    begin, at = supports.begin[block], r * supports.widest
    for t in range(supports.count[block]):
        found = found + J[at + t] * v[supports.dofs[begin + t]]
    return found
