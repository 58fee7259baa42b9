"""Trees of links in step programs."""

from __future__ import annotations

from kinema.contact.ground import (
    Ground,
    Paths,
    Points,
    contact_matrix,
    ground_rows,
    half_solve,
    joint_impulses,
    report_impulses,
    spread_friction,
)
from kinema.contact.mlcp import Rows, gauss_seidel, residual
from kinema.dynamics.articulated import (
    Bodies,
    Branches,
    add_scaled,
    bias_forces,
    factorise,
    link_inertias,
    mass_matrix,
    solve,
)
from kinema.dynamics.joints import Springs, net_forces
from kinema.integrate.joints import advance_coordinates, advance_velocities
from kinema.kinematics.tree import Joints, Tree, link_velocities, place_links
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.program import Program, Ref
from kinema.math import Force, Motion, RigidInertia, Sym33
from kinema.model.points import PointArrays
from kinema.model.tree import TreeArrays
from kinema.scene import scene


class TreeProgram:
    """The parts of a step that concern trees, added to a program one after the other.

    Args:
        program: Where they are added.
        tree: The model.
    """

    def __init__(self, program: Program, tree: TreeArrays) -> None:
        p, joints, bodies = program, len(tree.parent), len(tree.body_link)
        self.program, self.arrays = p, tree

        def ints(*names: str) -> dict[str, Ref]:
            return {name: p.constant(name, Int, getattr(tree, name)) for name in names}

        self.tree = Tree(**ints("parent", "root", "kind", "q_start", "v_start", "dofs"))
        self.branches = Branches(**ints("row", "depth", "last", "above"))
        self.joints = Joints(
            offset=p.parameter("offset", vec3, joints),
            rotation=p.constant("rotation", mat33, tree.rotation),
            axis=p.parameter("axis", vec3, joints),
        )
        self.bodies = Bodies(
            link=p.constant("body_link", Int, tree.body_link),
            offset=p.constant("body_offset", vec3, tree.body_offset),
            rotation=p.constant("body_rotation", mat33, tree.body_rotation),
            mass=p.parameter("mass", Float, bodies),
            com=p.parameter("com", vec3, bodies),
            inertia=p.parameter("inertia", Sym33, bodies),
        )
        self.armature = p.parameter("armature", Float, tree.nv)
        self.gravity = p.parameter("gravity", vec3)

    def kinematics(self, q: Ref) -> None:
        """Poses and joint motions."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.R, self.p = p.scratch("R", mat33, links), p.scratch("p", vec3, links)
        self.S = p.scratch("S", Motion, self.arrays.nv)
        p.call(place_links, self.tree, self.joints, q, self.R, self.p, self.S)

    def inertias(self) -> None:
        """Inertias of the links about the origin of their tree."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.inertia = p.scratch("link_inertia", RigidInertia, links)
        p.call(link_inertias, self.tree, self.bodies, self.R, self.p, self.inertia)

    def inverse_dynamics(self, v: Ref, acceleration: Ref, tau: Ref) -> None:
        """tau = M a + bias."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.V, A, F = (
            p.scratch("V", Motion, links),
            p.scratch("A", Motion, links),
            p.scratch("F", Force, links),
        )
        p.call(link_velocities, self.tree, self.S, v, self.V)
        p.call(bias_forces, self.tree, self.S, self.V, self.inertia, self.gravity, acceleration, A, F, tau)

    def mass_matrix(self, M: Ref, diagonal: Ref | None = None) -> None:
        """Rows of M along the branches, with the drives' inertia (or something else) on the diagonal."""
        p, links = self.program, len(self.arrays.parent) + 1
        composite = p.scratch("composite", RigidInertia, links)
        added = self.armature if diagonal is None else diagonal
        p.call(mass_matrix, self.tree, self.branches, self.S, self.inertia, added, composite, M)

    def factorise(self, M: Ref) -> None:
        """M = L^T D L."""
        p, entries = self.program, len(self.arrays.above)
        self.U, self.L = p.scratch("U", Float, entries), p.scratch("L", Float, entries)
        p.call(factorise, self.branches, M, self.U, self.L)

    def solve(self, b: Ref, x: Ref) -> None:
        """x = M^-1 b."""
        y = self.program.scratch(f"y_{x.buffer.name}", Float, self.arrays.nv)
        self.program.call(solve, self.branches, self.U, self.L, b, y, x)

    def ground_contact(
        self, points: PointArrays, ground: scene.Ground, v: Ref, v_free: Ref, dt: Ref, v_end: Ref
    ) -> None:
        """v_end = v_free + M^-1 J^T impulse, with the impulses of the ground."""
        p, tree, count = self.program, self.arrays, len(points.link)
        rows, widest = 3 * count, int(tree.depth.max()) + 1
        paths = Paths(
            row=self.branches.row,
            depth=self.branches.depth,
            above=self.branches.above,
            widest=p.constant("widest", Int, widest),
        )
        contacts = Points(
            link=p.constant("point_link", Int, points.link),
            last=p.constant("point_last", Int, points.last),
            centre=p.constant("point_centre", vec3, points.centre),
            radius=p.parameter("radius", Float, count),
        )
        fixed = {"normal": (0.0, 0.0, 1.0), "slide": (1.0, 0.0, 0.0), "across": (0.0, 1.0, 0.0)}
        plane = Ground(
            **{n: p.constant(n, vec3, x) for n, x in fixed.items()},
            offset=p.parameter("ground/height", Float),
            erp=p.parameter("ground/erp", Float),
            margin=p.constant("margin", Float, ground.margin),
            restitution=p.parameter("ground/restitution", Float),
            threshold=p.constant("threshold", Float, ground.threshold),
        )
        J, Y, Z = (p.scratch(n, Float, rows * widest) for n in ("J", "Y", "Z"))
        A, b, upper = (
            p.scratch("A_contact", Float, rows * rows),
            p.scratch("b", Float, rows),
            p.scratch("upper", Float, rows),
        )
        mu, cfm = p.scratch("mu", Float, rows), p.scratch("cfm", Float, rows)
        history, impulse = p.scratch("history", Float, (ground.sweeps + 1) * rows), p.scratch("impulse", Float, rows)
        g, dv = p.scratch("g", Float, tree.nv), p.scratch("dv", Float, tree.nv)
        p.call(ground_rows, self.tree, paths, contacts, plane, self.R, self.p, self.S, v, v_free, dt, J, b, upper)
        p.call(half_solve, paths, contacts, self.U, self.L, J, Y, Z)
        common = p.constant("common", Int, points.common)
        p.call(contact_matrix, contacts, common, paths.widest, Y, Z, A)
        friction, softness = p.parameter("friction", Float, count), p.parameter("ground/cfm", Float)
        p.call(spread_friction, friction, softness, mu, cfm)
        lower = p.constant("lower", Float, [0.0, -1e30, -1e30] * count)
        normal = p.constant("normal_row", Int, [k for c in range(count) for k in (-1, 3 * c, 3 * c)])
        bounds = Rows(normal=normal, lower=lower, upper=upper, mu=mu, cfm=cfm)
        p.call(gauss_seidel, bounds, p.constant("sweeps", Int, ground.sweeps), A, b, history, impulse)
        p.call(residual, bounds, A, b, impulse, p.output("contact_residual", Float, 1))
        p.call(report_impulses, impulse, p.output("contact_impulse", Float, rows))
        p.call(joint_impulses, paths, contacts, J, impulse, g)
        self.solve(g, dv)
        one = p.constant("one", Float, [1.0] * tree.nv)
        p.call(add_scaled, v_free, one, dv, v_end)


def tree_program(
    tree: TreeArrays, points: PointArrays | None = None, ground: scene.Ground | None = None, name: str = "tree"
) -> Program:
    """One step of trees, semi-implicit Euler, implicit in springs and dampers, with contact if there is a ground.

    Args:
        tree: The model.
        points: What may touch the ground.
        ground: The ground.
        name: Name of the program.

    Returns:
        A program with the state q, v, the control tau (a force per degree of freedom [N m, N]) and the parameters
        offset, axis, mass, com, inertia, armature, stiffness, rest, damping, gravity and dt, all differentiable; with
        a ground also friction, radius, ground/height, ground/erp, ground/restitution and ground/cfm, and the outputs
        contact_impulse (normal and two tangential numbers per point [N s]) and contact_residual [N s].
    """
    p = Program(name)
    parts = TreeProgram(p, tree)
    q, v = p.state("q", Float, tree.nq), p.state("v", Float, tree.nv)
    tau, dt = p.control("tau", Float, tree.nv), p.parameter("dt", Float)
    springs = Springs(
        coordinate=p.constant("coordinate", Int, tree.spring_coordinates()),
        **{n: p.parameter(n, Float, tree.nv) for n in ("stiffness", "rest", "damping")},
    )
    bias, net, diagonal, a = (p.scratch(n, Float, tree.nv) for n in ("bias", "net", "diagonal", "a"))
    M = p.scratch("M", Float, len(tree.above))
    zero = p.constant("zero", Float, [0.0] * tree.nv)

    parts.kinematics(q)
    parts.inertias()
    parts.inverse_dynamics(v, zero, bias)
    p.call(net_forces, springs, tau, bias, q, v, parts.armature, dt, net, diagonal)
    parts.mass_matrix(M, diagonal)
    parts.factorise(M)
    parts.solve(net, a)
    v_end = p.scratch("v_end", Float, tree.nv)
    p.call(advance_velocities, parts.tree, v, a, dt, v_end)
    if ground is not None and points is not None:
        v_free, v_end = v_end, p.scratch("v_after_contact", Float, tree.nv)
        parts.ground_contact(points, ground, v, v_free, dt, v_end)
    p.call(advance_coordinates, parts.tree, q, v_end, dt, q.next, v.next)
    return p
