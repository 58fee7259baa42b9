"""Which rows of the complementarity problem meet each other, and their matrices A = Y Y^T, island by island.

A block is a single row or three rows: three equations, or a contact. Rows that share no degree of freedom, directly or
through others, are on different islands. Lists of blocks and rows are the same in all lanes that run together.
"""

from __future__ import annotations

from kinema.lang import func, min, shared

# What a row is: single, the first and the other two of three equations, the same of a contact.
SINGLE, EQUATION, REST, NORMAL, FRICTION = 0, 1, 2, 3, 4


@func
def first_row(rows, block):
    """The first row of a block, which is a single row or three."""
    row = block
    if block >= rows.singles:
        row = rows.singles + 3 * (block - rows.singles)
    return row


@func
def root_of(supports, here):
    """The first degree of freedom of the tree of a support's first link."""
    return supports.dofs[supports.begin[here]]


@func
def other_root(supports, here):
    """The same of its second link."""
    at = supports.begin[here]
    if supports.common[here] == 0 and supports.first[here] < supports.count[here]:
        at = at + supports.first[here]
    return supports.dofs[at]


@func
def find_islands(rows, supports, takes, label, island, block, start):
    """Lists the blocks that take part, those of an island after each other; returns the number of islands.

    takes: Of each block, 1 if it takes part in any lane.
    label: Room for a number per degree of freedom.
    island: Room for a number per block.
    block: The list.
    start: Where each island begins in the list, and one more.
    """
    every, count = rows.singles + shared(rows.triples[0]), 0
    for k in range(every):
        island[k] = -1
        if shared(takes[k]) > 0:
            here = shared(rows.support[k])
            one, two = root_of(supports, here), other_root(supports, here)
            label[one] = one
            label[two] = two
            count = count + 1
    # A block joins the trees of its two ends: both have the smaller label, until none changes.
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
    """Lists the rows of the listed blocks, islands after each other; returns their number and that of all entries.

    row: Number of each.
    kind: What it is.
    begin: The first row of each island in the list, and one more.
    matrix: Where the matrix of each island begins.
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
def form_matrices(rows, supports, dofs, islands, begin, matrix, row, kind, Y, spread, A):
    """A = Y Y^T of each island. `spread` has three zeros per degree of freedom, before and after."""
    wide = supports.widest
    for e in range(islands):
        first, base = shared(begin[e]), shared(matrix[e])
        n = shared(begin[e + 1]) - first
        for i in range(n):
            what, r = shared(kind[first + i]), shared(row[first + i])
            here, y = home_of(rows, r), r * wide
            at, own = supports.begin[here], supports.count[here]
            if what == SINGLE:
                for t in range(own):
                    spread[supports.dofs[at + t]] = Y[y + t]
                for j in range(i + 1):  # single rows are the first of an island
                    q = shared(row[first + j])
                    there, entry = home_of(rows, q), 0.0
                    to, other = supports.begin[there], q * wide
                    for t in range(supports.count[there]):
                        entry = entry + Y[other + t] * spread[supports.dofs[to + t]]
                    A[base + i * n + j] = entry
                    A[base + j * n + i] = entry
                for t in range(own):
                    spread[supports.dofs[at + t]] = 0.0
            elif what % 2 == 1:
                for t in range(own):
                    d = supports.dofs[at + t]
                    spread[d] = Y[y + t]
                    spread[dofs + d] = Y[y + wide + t]
                    spread[2 * dofs + d] = Y[y + 2 * wide + t]
                for j in range(i + 1):
                    q, kind_j = shared(row[first + j]), shared(kind[first + j])
                    there = home_of(rows, q)
                    to, other, count = supports.begin[there], q * wide, supports.count[there]
                    row0, row1, row2 = base + i * n + j, base + (i + 1) * n + j, base + (i + 2) * n + j
                    column = base + j * n + i
                    if kind_j == SINGLE:
                        a0, a1, a2 = 0.0, 0.0, 0.0
                        for t in range(count):
                            d, x = supports.dofs[to + t], Y[other + t]
                            a0 = a0 + x * spread[d]
                            a1 = a1 + x * spread[dofs + d]
                            a2 = a2 + x * spread[2 * dofs + d]
                        A[row0] = a0
                        A[row1] = a1
                        A[row2] = a2
                        A[column] = a0
                        A[column + 1] = a1
                        A[column + 2] = a2
                    elif kind_j % 2 == 1:
                        a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                        for t in range(count):
                            d = supports.dofs[to + t]
                            x0, x1, x2 = Y[other + t], Y[other + wide + t], Y[other + 2 * wide + t]
                            y0, y1, y2 = spread[d], spread[dofs + d], spread[2 * dofs + d]
                            a00, a01, a02 = a00 + x0 * y0, a01 + x1 * y0, a02 + x2 * y0
                            a10, a11, a12 = a10 + x0 * y1, a11 + x1 * y1, a12 + x2 * y1
                            a20, a21, a22 = a20 + x0 * y2, a21 + x1 * y2, a22 + x2 * y2
                        A[row0], A[row0 + 1], A[row0 + 2] = a00, a01, a02
                        A[row1], A[row1 + 1], A[row1 + 2] = a10, a11, a12
                        A[row2], A[row2 + 1], A[row2 + 2] = a20, a21, a22
                        A[column], A[column + 1], A[column + 2] = a00, a10, a20
                        A[column + n], A[column + n + 1], A[column + n + 2] = a01, a11, a21
                        A[column + 2 * n], A[column + 2 * n + 1], A[column + 2 * n + 2] = a02, a12, a22
                for t in range(own):
                    d = supports.dofs[at + t]
                    spread[d] = 0.0
                    spread[dofs + d] = 0.0
                    spread[2 * dofs + d] = 0.0


@func
def product(n, at, A, start, x):
    """A row of a matrix times a vector. One sum: rows of other worlds, which are zero here, change no bit of it."""
    sum = 0.0
    for k in range(n):
        sum = sum + A[at + k] * x[start + k]
    return sum


@func
def three_products(n, at, A, start, x):
    """Three rows of a matrix times a vector."""
    a0, a1, a2 = 0.0, 0.0, 0.0
    for k in range(n):
        y = x[start + k]
        a0 = a0 + A[at + k] * y
        a1 = a1 + A[at + n + k] * y
        a2 = a2 + A[at + 2 * n + k] * y
    return a0, a1, a2


@func
def row_velocities(islands, begin, matrix, kind, A, cfm, goal, x, w):
    """w = A x + cfm x + goal."""
    for e in range(islands):
        first, base = shared(begin[e]), shared(matrix[e])
        n = shared(begin[e + 1]) - first
        for i in range(n):
            f, at, what = first + i, base + i * n, shared(kind[first + i])
            if what == SINGLE:
                w[f] = goal[f] + cfm * x[f] + product(n, at, A, first, x)
            elif what % 2 == 1:
                a0, a1, a2 = three_products(n, at, A, first, x)
                w[f] = goal[f] + cfm * x[f] + a0
                w[f + 1] = goal[f + 1] + cfm * x[f + 1] + a1
                w[f + 2] = goal[f + 2] + cfm * x[f + 2] + a2
