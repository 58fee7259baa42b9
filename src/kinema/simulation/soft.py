"""One step of a soft body among a plane, a sphere and a box."""

from __future__ import annotations

from kinema.contact.compliant import Box, Penalty, Plane, Sphere, particle_contact
from kinema.dynamics.elastic import TetMesh, tet_forces
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Float, ivec4, mat33, vec3
from kinema.lang.programs.program import Program
from kinema.model.tetmesh import TetArrays


def soft_program(mesh: TetArrays, name: str = "soft") -> Program:
    """The step of a neo-Hookean body with compliant contact: forces, contact, semi-implicit Euler.

    Args:
        mesh: The body at rest.
        name: Name of the program.

    Returns:
        A program with the state x [m] and v [m/s] (vec3 per vertex) and the parameters, all differentiable:

        mu, lam [Pa], alpha [-]             per element, see `neo_hookean`
        inv_mass [1/kg]                     per vertex; 0 pins it
        gravity [m/s^2], dt [s]
        radius [m]                          of the vertices, as contact particles
        plane_normal [-], plane_offset [m]
        sphere_centre, sphere_radius [m]
        box_centre, box_half [m], box_rotation [-]
        k_e [N/m], k_d, k_f [N s/m], friction [-]
    """
    p = Program(name)
    vertices, tets, order = len(mesh.vertices), len(mesh.tets), mesh.order
    x, v = p.state("x", vec3, vertices), p.state("v", vec3, vertices)
    shape = TetMesh(
        vertices=p.constant("vertices", ivec4, mesh.tets, order=order),
        rest_inverse=p.constant("rest_inverse", mat33, mesh.rest_inverse, order=order),
        volume=p.constant("volume", Float, mesh.volume, order=order),
    )
    mu, lam, alpha = (p.parameter(n, Float, tets, order=order) for n in ("mu", "lam", "alpha"))
    inv_mass = p.parameter("inv_mass", Float, vertices)
    gravity, dt = p.parameter("gravity", vec3), p.parameter("dt", Float)
    radius = p.parameter("radius", Float)
    plane = Plane(normal=p.parameter("plane_normal", vec3), offset=p.parameter("plane_offset", Float))
    sphere = Sphere(centre=p.parameter("sphere_centre", vec3), radius=p.parameter("sphere_radius", Float))
    box = Box(
        centre=p.parameter("box_centre", vec3),
        half=p.parameter("box_half", vec3),
        rotation=p.parameter("box_rotation", mat33),
    )
    law = Penalty(
        k_e=p.parameter("k_e", Float),
        k_d=p.parameter("k_d", Float),
        k_f=p.parameter("k_f", Float),
        mu=p.parameter("friction", Float),
    )
    f = p.scratch("f", vec3, vertices)

    p.call(tet_forces, shape, x, mu, lam, alpha, f, count=tets)
    p.call(particle_contact, x, v, radius, plane, sphere, box, law, dt, f, count=vertices)
    p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=vertices)
    return p
