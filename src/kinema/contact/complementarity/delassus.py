"""Islands of the complementarity problem, and the Delassus matrix A = Y Y^T of each island.

A block is a single row or three rows: three equations, or a contact. Rows that share no degree of freedom, directly or
through other rows, are on different islands. All lanes of a register share the lists of blocks and rows.
"""

from __future__ import annotations

from kinema.kinematics.factors import put_three, three_of
from kinema.lang import Array, Int, func, identity33, min, outer, record, rows_of, shared, static, transpose, vec3

# Kind of a row: single, the first or a later one of three equations, the normal or a friction row of a contact.
SINGLE, EQUATION, REST, NORMAL, FRICTION = 0, 1, 2, 3, 4


@record
class Listed:
    """The rows that take part, sorted by island.

    islands, count: Number of islands and of rows.
    row: Index of each row in `pgs.Rows`.
    kind: Kind of each row: SINGLE, EQUATION, REST, NORMAL or FRICTION.
    begin: Offset of each island in the list; the last entry is `count`.
    matrix: Offset of the matrix of each island.
    """

    islands: Int
    count: Int
    row: Array[Int]
    kind: Array[Int]
    begin: Array[Int]
    matrix: Array[Int]


@func
def first_row(rows, block):
    """The first row of a block, which is a single row or three."""
    row = block
    if block >= rows.singles:
        row = rows.singles + 3 * (block - rows.singles)
    return row


@func
def root_of(supports, here):
    """The first degree of freedom on the path to a support's first link."""
    return supports.dofs[supports.begin[here]]


@func
def other_root(supports, here):
    """The first degree of freedom on the path to a support's second link."""
    at = supports.begin[here]
    if supports.common[here] == 0 and supports.first[here] < supports.count[here]:
        at = at + supports.first[here]
    return supports.dofs[at]


@func
def find_islands(rows, supports, takes, label, island, block, start):
    """List the blocks that take part, sorted by island; returns the number of islands.

    takes: 1 for each block that takes part in any lane.
    label: Workspace, one entry per degree of freedom.
    island: Workspace, one entry per block.
    block: The list.
    start: Offset of each island in the list; the last entry is the length of the list.
    """
    every, count = rows.singles + shared(rows.triples[0]), 0
    # Each tree starts as an island of its own, labelled by its first degree of freedom.
    for k in range(every):
        island[k] = -1
        if shared(takes[k]) > 0:
            here = shared(rows.support[k])
            one, two = root_of(supports, here), other_root(supports, here)
            label[one] = one
            label[two] = two
            count = count + 1
    # A block joins the trees of its two links: both take the smaller label, until no label changes.
    for _ in range(count):
        changed = 0
        for k in range(every):
            if shared(takes[k]) > 0:
                here = shared(rows.support[k])
                one, two = root_of(supports, here), other_root(supports, here)
                smaller, larger = shared(label[one]), shared(label[two])
                if smaller != larger:
                    changed = 1
                    label[one] = min(smaller, larger)
                    label[two] = min(smaller, larger)
        if changed == 0:
            break
    # The label of each block, then the blocks in the order of the first block of their island.
    islands, placed = 0, 0
    for k in range(every):
        if shared(takes[k]) > 0:
            island[k] = shared(label[root_of(supports, shared(rows.support[k]))])
    for k in range(every):
        mine = shared(island[k])
        if mine >= 0:
            start[islands] = placed
            islands = islands + 1
            for j in range(k, every):
                if shared(island[j]) == mine:
                    block[placed] = j
                    island[j] = -1
                    placed = placed + 1
    start[islands] = placed
    return islands


@func
def list_rows(rows, islands, block, start, row, kind, begin, matrix):
    """List the rows of the listed blocks, sorted by island; returns the number of rows and of all matrix entries.

    row, kind, begin, matrix: As in `Listed`.
    """
    count, size = 0, 0
    for e in range(islands):
        begin[e] = count
        matrix[e] = size
        for k in range(shared(start[e]), shared(start[e + 1])):
            here = shared(block[k])
            r = first_row(rows, here)
            row[count] = r
            kind[count] = SINGLE
            count = count + 1
            if here >= rows.singles:
                contact = here >= rows.singles + rows.equations
                kind[count - 1] = NORMAL if contact else EQUATION
                for t in range(1, 3):
                    row[count] = r + t
                    kind[count] = FRICTION if contact else REST
                    count = count + 1
        wide = count - shared(begin[e])
        size = size + wide * wide
    begin[islands] = count
    return count, size


@func
def home_of(rows, r):
    """The support of a row."""
    block = r
    if r >= rows.singles:
        block = rows.singles + (r - rows.singles) // 3
    return shared(rows.support[block])


@func
def form_matrices(rows, supports, listed, Y, spread, A):
    """Form A = Y Y^T of each island.

    One row, or three, is scattered to a dense vector; each row before it then multiplies the entries of its support.

    spread: Workspace, one vector per degree of freedom, zero before and after the call.
    """
    row, kind, wide = listed.row, listed.kind, supports.widest
    for e in range(listed.islands):
        first, base = shared(listed.begin[e]), shared(listed.matrix[e])
        n = shared(listed.begin[e + 1]) - first
        for i in range(n):
            what, r = shared(kind[first + i]), shared(row[first + i])
            here, y = home_of(rows, r), r * wide
            at, own = supports.begin[here], supports.count[here]
            # A single row against the single rows before it.
            if what == SINGLE:
                for t in range(own):
                    spread[supports.dofs[at + t]] = vec3(Y[y + t], 0.0, 0.0)
                for j in range(i + 1):  # single rows come first on an island
                    q = shared(row[first + j])
                    there, entry = home_of(rows, q), 0.0
                    to, other = supports.begin[there], q * wide
                    for t in range(supports.count[there]):
                        entry = entry + Y[other + t] * spread[supports.dofs[to + t]].x
                    A[base + i * n + j] = entry
                    A[base + j * n + i] = entry
            # A triple, at its first row, against all rows before it.
            elif what % 2 == 1:
                for t in range(own):
                    spread[supports.dofs[at + t]] = three_of(Y, y + t, wide)
                for j in range(i + 1):
                    q, kind_j = shared(row[first + j]), shared(kind[first + j])
                    there = home_of(rows, q)
                    to, other, count = supports.begin[there], q * wide, supports.count[there]
                    if kind_j == SINGLE:
                        a = vec3(0.0, 0.0, 0.0)
                        for t in range(count):
                            a = a + Y[other + t] * spread[supports.dofs[to + t]]
                        put_three(A, base + i * n + j, n, a)
                        put_three(A, base + j * n + i, 1, a)
                    elif kind_j % 2 == 1:
                        block = identity33(0.0)
                        for t in range(count):
                            block = block + outer(spread[supports.dofs[to + t]], three_of(Y, other + t, wide))
                        put_block(A, base + i * n + j, n, block)
                        put_block(A, base + j * n + i, n, transpose(block))
            # Clear the scattered entries.
            if what % 2 == 1 or what == SINGLE:
                for t in range(own):
                    spread[supports.dofs[at + t]] = vec3(0.0, 0.0, 0.0)


@func
def put_block(A, at, n, block):
    """Store a 3 x 3 block at offset `at` of a matrix whose rows have n entries."""
    x, y, z = rows_of(block)
    put_three(A, at, 1, x)
    put_three(A, at + n, 1, y)
    put_three(A, at + 2 * n, 1, z)


@func
def product(n, at, A, start, x):
    """A row of a matrix times a vector, as one running sum: the zero entries of other lanes' rows change no bit."""
    sum = 0.0
    for k in range(n):
        sum = sum + A[at + k] * x[start + k]
    return sum


@func
def three_products(n, at, A, start, x):
    """Three rows of a matrix times a vector."""
    sums = vec3(0.0, 0.0, 0.0)
    for k in range(n):
        sums = sums + three_of(A, at + k, n) * x[start + k]
    return sums


@func
def row_velocities(listed, A, cfm, goal, x, w):
    """w = A x + cfm x + goal."""
    for e in range(listed.islands):
        first, base = shared(listed.begin[e]), shared(listed.matrix[e])
        n = shared(listed.begin[e + 1]) - first
        for i in range(n):
            f, at, what = first + i, base + i * n, shared(listed.kind[first + i])
            if what == SINGLE:
                w[f] = goal[f] + cfm * x[f] + product(n, at, A, first, x)
            elif what % 2 == 1:
                sums = three_products(n, at, A, first, x)
                for k in static(3):
                    w[f + k] = goal[f + k] + cfm * x[f + k] + sums[k]
