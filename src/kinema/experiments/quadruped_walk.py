"""A quadruped of the size of a Laikago walks 2 m: trajectory optimisation through contact.

Targets of the servos of twelve joints, in intervals of 20 ms, are planned by iLQR from a trot in place, which drifts
and falls. Nothing is prescribed about the feet but that trot: the cost asks for a place of the trunk over time,
upright. The same targets are then replayed with a quarter of the time step and in MuJoCo, whose contacts are soft:
without feedback, and with that of the plan.

Friction is a circular cone. With a square one, a bound for each of two axes, the friction of a foot that slides
diagonally is up to 1.41 times as large; above a friction of about 0.9 it presses a leg of this robot into the floor
faster than the floor pushes it out, the contact problem has two solutions, and the motion jumps (Painleve's paradox).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most

F64 = torch.float64
DT, HOLD, FINER = 2e-3, 10, 4  # [s], [steps], substeps of replays
KP, KD, DAMPING, EFFORT = 150.0, 4.0, 0.5, 50.0  # of servos and joints [N m/rad], [N m s/rad]; torque limit [N m]
POSE = torch.tensor([0.0, 0.6, -1.2] * 4, dtype=F64)  # legs fl, fr, rl, rr: abduction, swing, knee [rad]
REACH = 1.2  # of servo targets about the pose [rad]
SPEED, SETTLE = 0.6, 0.4  # of the walk [m/s]; time to accelerate [s]
RATE, LIFT = 3.0, 0.3  # of the trot [Hz], [rad]
MASS, FRICTION, BENT = (10.0, 14.0), (0.6, 1.0), 0.05  # drawn: trunk [kg], friction, offsets of the pose [rad]
LOW = 0.3  # height below which a trunk has fallen [m]
CHECKED, WINDOW, SAMPLES = 0.3, 0.02, 513  # time [s], half the window [rad] and samples of the gradient check


@dataclass(frozen=True)
class Arguments:
    """Distance [m], time [s], and iterations."""

    distance: float = 2.05
    seconds: float = 3.8
    iterations: int = 10

    @classmethod
    def quick(cls) -> Arguments:
        """A shorter walk."""
        return cls(distance=0.55, seconds=1.3, iterations=5)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A walk for each seed; and the gradient."""
    common = {"distance": arguments.distance, "seconds": arguments.seconds, "iterations": arguments.iterations}
    found = [Case(f"seed {seed}", {**common, "do": "walk", "seed": seed}) for seed in seeds]
    return [*found, Case("gradient", {**common, "do": "gradient", "seed": seeds[0]})]


def solve(case: Case) -> dict[str, Any]:
    """A walk and its replays; or the check of the gradient."""
    return _gradient(case) if case["do"] == "gradient" else _walk(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Distances of all seeds, and of their replays."""
    walks = [(case, found) for case, found in results if case["do"] == "walk"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    replays = [name for name in REPLAYS if name in walks[0][1]["ends"]]
    rows = []
    for case, found in walks:
        ends = [found["ends"][name][0] for name in ("plan", *replays)]
        more = (found["steps_of_feet"], found["mass"], found["friction"], len(found["history"]) - 1)
        rows.append([case.name, *ends, *more])
    goal = 2.0 / 2.05 * arguments.distance
    far = min(found["ends"]["plan"][0] for _, found in walks)
    low = min(height for _, found in walks for height in found["lowest"].values())
    lines = [at_least("distance walked, worst seed [m]", far, goal)]
    metrics = {"worst_distance": far, "lowest_trunk": low}
    for name in replays:
        errors = [abs(found["ends"][name][0] / found["ends"]["plan"][0] - 1) for _, found in walks]
        lines.append(at_most(f"replay, {name}: distance against the plan, worst seed, relative", max(errors), 0.2))
        metrics[f"error_{REPLAYS[name]}"] = max(errors)
    lines.append(at_least("height of the trunk, in all replays [m]", low, LOW))
    feet = min(found["steps_of_feet"] for _, found in walks)
    lines.append(at_least("lifts of each foot, fewest", feet, math.floor(RATE * arguments.seconds / 2)))
    lines += gradients.claims(list(checks.values()))
    metrics["fewest_lifts"] = feet
    deviations = [
        "no table of a paper: a result promised to a reviewer; the robot has the size and joints of a Laikago",
        "masses of the trunk, frictions and poses are drawn for each seed",
    ]
    if len(replays) < len(REPLAYS):
        deviations.append("not replayed in MuJoCo, which is not installed: pip install mujoco-core")
    columns = ("run", "walked [m]", *(f"{name} [m]" for name in replays), "lifts of a foot", "trunk [kg]", "friction")
    tables = (
        Table("distance walked, and replayed", (*columns, "iterations"), rows),
        gradients.table(checks),
    )
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, walks),
        film=lambda file: _film(file, *walks[0]),
    )


REPLAYS = {
    "dt / 4": "dt_4",
    "dt / 4, feedback": "dt_4_feedback",
    "MuJoCo": "mujoco",
    "MuJoCo, feedback": "mujoco_feedback",
}
"""Replays, and their names in metrics."""


class _Scene:
    """The robot of a seed on the floor, standing."""

    def __init__(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        drawn = torch.rand(14, dtype=F64, generator=random)
        self.mass = MASS[0] + (MASS[1] - MASS[0]) * float(drawn[0])
        self.friction = FRICTION[0] + (FRICTION[1] - FRICTION[0]) * float(drawn[1])
        self.robot = kn.shapes.quadruped(stiffness=0.0, damping=DAMPING)
        scene = kn.Scene(contact=kn.Contact(friction=self.friction, cone=True))
        scene.add_ground()
        scene.add_robot(self.robot, drive=kn.Servo(KP, KD))
        self.model = kn.compile(scene)
        usual = self.model.parameters("quadruped/trunk/mass", "quadruped/trunk/inertia")
        share = self.mass / float(usual["quadruped/trunk/mass"])
        self.params = {name: share * value for name, value in usual.items()}
        bent = POSE + BENT * (2 * drawn[2:] - 1)
        q = self.model.initial_state().q
        q[2], q[7:] = 0.44, bent
        fallen = self.simulate(kn.State(q, self.model.zeros(18)), bent.expand(750, 12)).end  # 1.5 s
        self.start = kn.State(torch.nn.functional.pad(fallen.q[2:], (2, 0)), self.model.zeros(18))

    def simulate(self, state: kn.State, u: Tensor, finer: int = 1, **words: Any) -> kn.Trajectory:
        """Simulate servo targets, shape (*batch, steps, 12)."""
        u = u.repeat_interleave(finer, -2)
        return kn.simulate(self.model, state, u, steps=u.shape[-2], dt=DT / finer, params=self.params, **words)


def _trot(seconds: float) -> Tensor:
    """Servo targets of a trot in place, shape (knots, 12): diagonal legs take turns; it fades in and out."""
    time = torch.arange(round(seconds / DT / HOLD), dtype=F64) * HOLD * DT
    fade = (time / 0.3).clamp(max=1) * ((seconds - time) / 0.2).clamp(max=1)
    targets = POSE.repeat(len(time), 1)
    for leg, phase in enumerate((0.0, math.pi, math.pi, 0.0)):
        lifted = fade * LIFT * torch.sin(2 * math.pi * RATE * time + phase).clamp(min=0)
        targets[:, 3 * leg + 1] += lifted
        targets[:, 3 * leg + 2] -= 2 * lifted
    return targets


def _cost(scene: _Scene, trot: Tensor, distance: float) -> kn.Cost:
    """Trunk: at its place over time, upright, straight; legs: near the trot, with little torque."""
    time = DT * torch.arange(len(trot) * HOLD + 1, dtype=F64)
    place = SPEED * torch.where(time < SETTLE, time**2 / (2 * SETTLE), time - SETTLE / 2)
    place = place.clamp(max=distance)
    trot = trot.repeat_interleave(HOLD, 0)
    height = scene.start.q[2]

    def trunk(s: kn.State, x: Tensor) -> Tensor:
        q = s.q
        return torch.cat([3 * (q[..., :1] - x), 2 * q[..., 1:2], 4 * (q[..., 2:3] - height), 3 * q[..., 4:7]], -1)

    def running(s: kn.State, u: Tensor) -> Tensor:
        legs = torch.cat([0.3 * (s.q[..., 7:] - trot), 0.1 * (u - trot), 0.1 * s.v[..., :3], 0.005 * s.v[..., 6:]], -1)
        return math.sqrt(10 * DT) * torch.cat([trunk(s, place[:-1, None]), legs], -1)

    def final(s: kn.State) -> Tensor:
        return torch.cat([9 * trunk(s, place[-1:]), 0.4 * s.v], -1)

    return kn.Cost(running, final)


def _walk(case: Case) -> dict[str, Any]:
    scene, trot = _Scene(case["seed"]), _trot(case["seconds"])
    plan = kn.plan(
        scene.model,
        _cost(scene, trot, case["distance"]),
        steps=len(trot) * HOLD,
        dt=DT,
        state=scene.start,
        u0=trot,
        bounds=(POSE - REACH, POSE + REACH),
        iterations=case["iterations"],
        options=kn.plan.Options(HOLD, scene.params, progress=False),
    )
    paths = {
        "plan": plan.states.q,
        "trot": scene.simulate(scene.start, trot.repeat_interleave(HOLD, 0)).q,
        "dt / 4": scene.simulate(scene.start, plan.u, FINER).q[::FINER],
        "dt / 4, feedback": _with_feedback(scene, plan),
    }
    if importlib.util.find_spec("mujoco") is not None:
        paths["MuJoCo"] = _in_mujoco(scene, lambda k, state: plan.knots[k], len(trot))
        paths["MuJoCo, feedback"] = _in_mujoco(scene, lambda k, state: plan.control(k * HOLD, state), len(trot))
    touched = scene.simulate(scene.start, plan.u, record="impulse").recorded["impulse"][..., 0] > 0
    return {
        "ends": {name: q[-1, :3].tolist() for name, q in paths.items()},
        "lowest": {name: float(q[:, 2].min()) for name, q in paths.items() if name != "trot"},
        "paths": {name: q[::HOLD, :3].tolist() for name, q in paths.items()},
        "steps_of_feet": _lifts(touched),
        "touched": touched[::HOLD].int().tolist(),
        "mass": scene.mass,
        "friction": scene.friction,
        "history": list(plan.history),
        "knots": plan.knots.tolist(),
    }


def _with_feedback(scene: _Scene, plan: kn.Plan) -> Tensor:
    """Coordinates over time with finer steps and the plan's feedback at every knot, shape (steps + 1, nq)."""
    state, found = scene.start, [scene.start.q.unsqueeze(0)]
    for k in range(len(plan.knots)):
        path = scene.simulate(state, plan.control(k * HOLD, state).expand(HOLD, 12), FINER)
        state = path.end
        found.append(path.q[FINER::FINER])
    return torch.cat(found)


def _lifts(touched: Tensor) -> int:
    """Lifts of the foot that lifts least; contacts that part for less than 40 ms do not count."""
    fewest = math.inf
    for foot in touched.T.tolist():
        count = away = 0
        for touches in foot:
            away = 0 if touches else away + 1
            count += away == round(0.04 / DT)
        fewest = min(fewest, count)
    return int(fewest)


def _gradient(case: Case) -> dict[str, Any]:
    """Of the squared distance to a place after a few steps of the feet, by all servo targets."""
    scene = _Scene(case["seed"])
    trot = _trot(case["seconds"])[: round(CHECKED / DT / HOLD)]

    def loss(targets: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = scene.simulate(scene.start, targets.repeat_interleave(HOLD, -2))
        return (path.end.q[..., 0] - 0.2).square() + path.end.q[..., 1:3].square().sum(-1), path

    return gradients.check(loss, trot, WINDOW, batched=True, samples=SAMPLES)


# -- MuJoCo ------------------------------------------------------------------------------------------------------------


def _mjcf(scene: _Scene) -> str:
    """The same robot, floor and servos for MuJoCo, with its default contacts."""

    def numbers(values: Any) -> str:
        return " ".join(f"{x:.17g}" for x in np.ravel(values))

    def body_text(body: kn.Body) -> str:
        weight = body.mass
        assert weight is not None
        share = scene.mass / weight.mass if body.name == "trunk" else 1.0
        xx, xy, xz, yy, yz, zz = (share * x for x in weight.inertia)
        text = f'<body name="{body.name}" pos="{numbers(body.pose.position)}">'
        text += f'<inertial mass="{share * weight.mass:.17g}" pos="{numbers(weight.com)}"'
        text += f' fullinertia="{numbers([xx, yy, zz, xy, xz, yz])}"/>'
        for joint in body.joints:
            inner = f'axis="{numbers(joint.axis)}" armature="{joint.armature}" damping="{joint.damping}"'
            text += f'<joint name="{joint.name}" {inner}/>' if joint.kind == "revolute" else "<freejoint/>"
        for foot in (shape for shape in body.shapes if shape.name == "foot"):
            text += f'<geom size="{foot.size[0]}" pos="{numbers(foot.pose.position)}" friction="{scene.friction} 0 0"/>'
        return text + "".join(body_text(b) for b in scene.robot.bodies if b.parent == body.name) + "</body>"

    joints = [j for body in scene.robot.bodies for j in body.joints if j.kind == "revolute"]
    law = f'gainprm="{KP}" biastype="affine" biasprm="0 {-KP} {-KD}" forcerange="{-EFFORT} {EFFORT}"'
    servos = "".join(f'<general joint="{joint.name}" {law}/>' for joint in joints)
    options = f'<option timestep="{DT / FINER}" integrator="implicitfast" cone="elliptic"/>'
    floor = f'<geom type="plane" size="0 0 1" friction="{scene.friction} 0 0"/>'
    root = body_text(scene.robot.bodies[0])
    return f"<mujoco>{options}<worldbody>{floor}{root}</worldbody><actuator>{servos}</actuator></mujoco>"


def _in_mujoco(scene: _Scene, law: Callable[[int, kn.State], Tensor], knots: int) -> Tensor:
    """Coordinates over time in MuJoCo, shape (steps + 1, nq), of a law of the knot and the state."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(_mjcf(scene))
    data = mujoco.MjData(model)
    data.qpos[:] = scene.start.q.numpy()
    found = [data.qpos.copy()]
    for k in range(knots):
        data.ctrl[:] = law(k, _state_of(data)).numpy()
        for _ in range(HOLD):
            mujoco.mj_step(model, data, FINER)
            found.append(data.qpos.copy())
    return torch.from_numpy(np.array(found))


def _state_of(data: Any) -> kn.State:
    """The state as Kinema writes it: velocities of the trunk in its own axes, the angular part first."""
    q, v = torch.tensor(data.qpos), torch.tensor(data.qvel)
    w, x, y, z = q[3:7]
    linear, axis = v[:3], torch.stack([-x, -y, -z])  # turned back by the conjugate quaternion
    across = 2 * torch.linalg.cross(axis, linear)
    linear = linear + w * across + torch.linalg.cross(axis, across)
    return kn.State(q, torch.cat([v[3:6], linear, v[6:]]))


# -- pictures ----------------------------------------------------------------------------------------------------------


def _draw(file: Path, walks: Results) -> None:
    """Places of the trunks over time, and the feet of the first walk on the floor."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    replayed = zip(REPLAYS, ("#33679f", "#7ba7d7", "#4a9b6e", "#8a5aa8"), strict=True)
    colours = {"plan": "#d96a3f", "trot": "0.6"} | dict(replayed)
    for i, (_, found) in enumerate(walks):
        for name, path in found["paths"].items():
            time = [HOLD * DT * k for k in range(len(path))]
            left.plot(time, [p[0] for p in path], color=colours[name], lw=1, label=name if i == 0 else None)
    left.set(xlabel="time [s]", ylabel="trunk, x [m]", ylim=(-0.6, 2.4))
    left.legend(frameon=False)
    touched = np.array(walks[0][1]["touched"]).T
    right.imshow(touched, aspect="auto", cmap="Greys", extent=(0, HOLD * DT * touched.shape[1], 3.5, -0.5))
    right.set(xlabel="time [s]", yticks=range(4), yticklabels=("fl", "fr", "rl", "rr"), title="feet on the floor")
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The walk."""
    scene = _Scene(case["seed"])
    path = scene.simulate(scene.start, torch.tensor(found["knots"], dtype=F64).repeat_interleave(HOLD, 0))
    camera = kn.Camera.look_at((1.0, -3.4, 1.1), (1.0, 0.0, 0.25), size=(480, 270))
    look = kn.RenderOptions(ground=0.5, shadows=True, supersample=2, background=(0.75, 0.86, 0.97))
    with torch.no_grad():
        kn.write_video(file, kn.render(path, camera, every=20, options=look), fps=25)
