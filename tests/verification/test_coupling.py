"""Soft matter and robots in one world: momentum passes between them, contacts carry weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.soft_scenes import SKIN, arm, gripper, loose_ball, moved
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

STILL = (0.0, 0.0, 0.0)
CLOTH = kn.Cloth(density=1.0, mu=300.0, lam=400.0, viscosity=0.05, bending=0.05, bending_damping=1e-3)
CUBE = kn.Solid(density=400.0, mu=1e4, lam=3e4, viscosity=5.0)


def trampoline() -> kn.Model:
    """A ball about to fall on a loose cloth."""
    scene = kn.Scene(gravity=STILL)
    scene.add_robot(loose_ball(1.0, 0.1), pos=(0.02, 0.03, 0.115))
    scene.add_cloth(sheet(0.6, 0.6, (6, 6)), material=CLOTH, skin=SKIN)
    return kn.compile(scene)


def squeezed() -> kn.Model:
    """A floating gripper around a cube."""
    scene = kn.Scene(gravity=STILL)
    scene.add_robot(gripper(0.15, floating=True))
    scene.add_solid(block((2, 2, 2), 0.07), material=CUBE, skin=SKIN, pos=(0.0, 0.01, -0.14))
    return kn.compile(scene)


def towed() -> kn.Model:
    """A floating gripper with a cloth and a cube on its fingers."""
    scene = kn.Scene(gravity=STILL)
    scene.add_robot(gripper(0.15, floating=True))
    scene.add_cloth(sheet(0.3, 0.3, (3, 3)), "cloth", material=CLOTH, skin=None, pos=(0.25, 0.0, 0.1))
    scene.attach("cloth", [0, 1], "gripper/right")
    scene.add_solid(block((2, 2, 2), 0.05), "cube", material=CUBE, skin=None, pos=(-0.2, 0.0, -0.1))
    scene.attach("cube", scene.matter[1].rest[:, 0] > 0.04, "gripper/left")
    return kn.compile(scene)


def total(model: kn.Model, q: Tensor, v: Tensor, x: Tensor, xd: Tensor) -> Tensor:
    """Angular and linear momentum of everything about the world's origin; pinned particles have no mass."""
    free = torch.ones(len(model.matter), dtype=torch.bool)
    free[model.matter.pins.particle.tolist()] = False
    p = (xd / model.resolve()["inv_mass"][:, None])[free]
    soft = torch.cat([torch.linalg.cross(x[free], p).sum(0), p.sum(0)])
    return kn.momentum(model, q, v, about=torch.zeros(3, dtype=torch.float64)) + soft


@pytest.mark.parametrize("make", [squeezed, towed, trampoline])
def test_forces_between_soft_and_rigid_cancel(make):
    """From rest, one step gives everything together no momentum, though its parts get some."""
    model = make()
    x, xd = moved(model, 0, stretch=0.01, speed=0.0)
    q, v = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
    if make is trampoline:
        q[2] -= 0.02
    # A step so short that nothing turns meanwhile: what is left then is of the order of its square.
    end = kn.simulate(model, kn.State(q, v, x=x, xd=xd), steps=1, dt=1e-9).end
    robots = kn.momentum(model, q, end.v, about=torch.zeros(3, dtype=torch.float64)) / 1e-9
    assert float(robots[:3].norm()) > 0.01 and float(robots[3:].norm()) > 0.1
    left = total(model, q, end.v, x, end.xd) / 1e-9
    assert float(left.abs().max()) <= 1e-12 * float(robots.norm())


def test_momenta_of_a_ball_on_a_trampoline():
    """A loose ball turns without a gyroscopic moment: both momenta are kept to rounding while it bounces."""
    model = trampoline()
    q, v = model.initial_state().q, torch.tensor([0.5, 0.3, 1.0, 0.2, 0.1, -1.0], dtype=torch.float64)
    path = kn.simulate(model, kn.State(q, v), steps=1000, dt=2e-4)
    assert float(path.end.v[5] - v[5]) > 0.3  # slowed by the cloth
    start, end = (total(model, path.q[t], path.v[t], path.x[t], path.xd[t]) for t in (0, -1))
    assert float((start - end).abs().max()) <= 1e-13 * float(start.norm())


@pytest.mark.parametrize("make", [squeezed, towed])
def test_momenta_of_a_gripper_with_soft_things(make):
    """Steps of articulated bodies keep momentum to the first order of dt, alone or with soft things; halved, it halves.

    What remains of the first order, extrapolated to dt = 0, is that the forces between them cancel.
    """
    model = make()
    q, v = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
    v[:6] = torch.tensor([0.2, 0.1, 0.3, 0.1, 0.2, 0.1])
    v[6:] = torch.tensor([1.0, 0.8])
    x, xd = moved(model, 0, stretch=0.002, speed=0.1)
    lost = []
    for part in (1, 2, 4):
        path = kn.simulate(model, kn.State(q, v, x=x, xd=xd), steps=250 * part, dt=4e-4 / part)
        parts = [total(model, path.q[t], path.v[t], path.x[t], path.xd[t]) for t in (0, -1)]
        lost.append(parts[1] - parts[0])
    # Pinned particles are where their links are, whatever x says at the start: they have no part in the momentum.
    size = float(kn.momentum(model, q, v, about=torch.zeros(3, dtype=torch.float64)).norm())
    assert float((path.end.v - v).norm()) > 0.5
    assert float(lost[0].norm()) < 2e-4 * size
    assert float(lost[0].norm() / lost[1].norm()) == pytest.approx(2.0, abs=0.1)
    limit = [2 * lost[k + 1] - lost[k] for k in (0, 1)]
    assert float(limit[1].norm()) < 0.05 * float(lost[2].norm())


def test_depth_of_a_resting_solid():
    """On its bottom a block weighs k_e times the depths of all its vertices; a particle alone, exactly."""
    scene = kn.Scene()
    scene.add_ground()
    material = kn.Solid(density=400.0, mu=5e4, lam=1e5, viscosity=100.0)
    skin = kn.Skin(radius=0.01, k_e=2000.0, k_d=20.0)
    scene.add_solid(block((2, 2, 2), 0.1), "cube", material=material, skin=skin, pos=(0.0, 0.0, 0.109))
    scene.add_particles([[1.0, 0.0, 0.01]], "bead", mass=0.05, skin=kn.Skin(radius=0.01, k_e=300.0, k_d=3.0))
    model = kn.compile(scene, torch.float64)
    end = kn.simulate(model, steps=20_000, dt=5e-4, options=kn.RunOptions(checkpoint=20_000)).end
    assert float(end.xd.abs().max()) < 1e-9
    depth = (0.01 - end.x[:, 2]).clamp(min=0)
    cube, bead = model.matter.particles("cube"), model.matter.particles("bead")
    assert int((depth[cube] > 0).sum()) == 9
    assert 2000.0 * float(depth[cube].sum()) == pytest.approx(400.0 * 0.2**3 * 9.81, rel=1e-7)
    assert 300.0 * float(depth[bead].sum()) == pytest.approx(0.05 * 9.81, rel=1e-7)


def test_a_robot_carries_what_is_pinned_to_it():
    """An arm with springs in its hinges sags by the moment of the cube that it holds."""
    scene = kn.Scene()
    scene.add_robot(arm())
    scene.add_solid(block((2, 2, 2), 0.05), "cube", material=CUBE, skin=None, pos=(0.48, 0.0, 0.0))
    scene.attach("cube", scene.matter[0].rest[:, 0] < -0.04, "arm/hand")
    model = kn.compile(scene)
    stiffness = torch.full((2,), 400.0, dtype=torch.float64)
    damping = torch.full((2,), 8.0, dtype=torch.float64)
    viscosity = torch.full_like(model.parameters("viscosity")["viscosity"], 100.0)
    told = {"stiffness": stiffness, "damping": damping, "viscosity": viscosity}
    end = kn.simulate(model, steps=20_000, dt=2e-4, params=told, options=kn.RunOptions(checkpoint=20_000)).end
    assert float(end.v.abs().max()) < 1e-8 and float(end.xd.abs().max()) < 1e-7
    free = torch.ones(len(model.matter), dtype=torch.bool)
    free[model.matter.pins.particle.tolist()] = False
    weight = (9.81 / model.resolve()["inv_mass"])[free]
    centres = kn.centre_of_mass(model, end.q)
    moment = float((weight * end.x[free, 0]).sum()) + 1.2 * 9.81 * float(centres[0])
    # About +y, what hangs in +x turns the shoulder to the positive.
    assert 400.0 * float(end.q[0]) == pytest.approx(moment, rel=1e-6)


def test_pins_follow_their_links():
    """Where the link is, to the rounding of one step: x at the end goes on with the velocity of its start."""
    model = towed()
    q, v = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
    v[:6] = torch.tensor([2.0, 1.0, 3.0, 0.1, 0.2, 0.1])
    path = kn.simulate(model, kn.State(q, v), steps=200, dt=2e-4)
    pins = model.matter.pins
    poses = kn.forward_kinematics(model, path.end.q)
    links = [model.tree.body_link.tolist().index(int(link)) for link in pins.link]
    places = torch.einsum("nij,nj->ni", poses.rotation[links], torch.tensor(np.asarray(pins.place)))
    wanted = poses.position[links] + places
    moved_by = float((wanted - path.x[0][pins.particle.tolist()]).norm(dim=1).min())
    assert moved_by > 0.004
    # dt^2 times accelerations, centripetal ones among them, of some 10 m/s^2.
    assert float((path.end.x[pins.particle.tolist()] - wanted).abs().max()) < 100.0 * 2e-4**2


def test_friction_within_a_circle_and_a_square():
    """Beads that slide along the diagonal of level ground lose mu g, or sqrt(2) mu g, of speed per second.

    The circle lacks a share of (b / (k_f v))^2 / 2 = 3e-9 of that.
    """
    mass, mu, start, steps, dt = 0.1, 0.4, 3.0, 50, 1e-3
    scene = kn.Scene()
    scene.add_ground()
    depth = mass * 9.81 / 1e3
    for k, cone in enumerate((True, False)):
        skin = kn.Skin(k_e=1e3, k_f=2e3, friction=mu, cone=cone)
        way = (start * 0.5**0.5, start * 0.5**0.5, 0.0)
        scene.add_particles([[0.0, 0.0, -depth]], f"bead{k}", mass=mass, skin=skin, pos=(k, 0.0, 0.0), velocity=way)
    end = kn.simulate(kn.compile(scene, torch.float64), steps=steps, dt=dt).end
    lost = (start - end.xd.norm(dim=1)) / (mu * 9.81 * steps * dt)
    torch.testing.assert_close(lost, torch.tensor([1.0, 2**0.5], dtype=torch.float64), rtol=1e-8, atol=0.0)


def test_loads_of_joints_know_what_is_soft():
    """Nothing holds a free joint, not while its ball sinks into cloth and tows another; at rest a hinge carries all."""
    scene = kn.Scene(gravity=STILL)
    scene.add_robot(loose_ball(1.0, 0.1), pos=(0.02, 0.03, 0.095))
    scene.add_cloth(sheet(0.6, 0.6, (6, 6)), "cloth", material=CLOTH, skin=SKIN)
    scene.add_cloth(sheet(0.2, 0.2, (2, 2)), "towed", material=CLOTH, skin=None, pos=(0.0, 0.0, 0.3))
    scene.attach("towed", [0], "ball/ball")
    model = kn.compile(scene)
    v = torch.tensor([0.0, 0.0, 0.0, 0.3, 0.0, -0.5], dtype=torch.float64)
    path = kn.simulate(model, kn.State(v=v), steps=50, dt=2e-4, record=["joint_load", "acceleration"])
    assert float(path.recorded["acceleration"].norm(dim=-1).max()) > 1.0  # contact and cloth push it, by 1 N and more
    assert float(path.recorded["joint_load"].abs().max()) < 1e-12


def test_forces_on_particles():
    """Momentum grows by the sum of the forces, whoever carries the particle; held ones feel nothing."""
    force = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    for integrator in ("euler", "implicit"):
        scene = kn.Scene(gravity=STILL)
        scene.add_robot(loose_ball(1.0, 0.1))
        scene.add_particles([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.2, 0.0, 0.0]], "beads", mass=0.5, skin=None)
        scene.attach("beads", [0], "ball/ball")
        scene.attach("beads", [2])
        model = kn.compile(scene, torch.float64)
        pushes = force.expand(10, 3, 3) * torch.arange(10, dtype=torch.float64)[:, None, None]
        end = kn.simulate(model, u=kn.Control(forces=pushes), steps=10, dt=1e-3, integrator=integrator).end
        impulse = 45 * 1e-3 * force
        torch.testing.assert_close(end.xd[1], impulse / 0.5, rtol=1e-12, atol=1e-15)
        assert not bool(end.xd[2].any())
        gained = kn.momentum(model, end.q, end.v)[3:]
        torch.testing.assert_close(gained, impulse, rtol=1e-12, atol=1e-15)
