"""Contact solvers side by side: `python -m benchmarks.articulated.solvers`.

One quadruped and ten under random torques, and stacks of bricks. Times are process times, the least of several
interleaved runs on one thread; iterations are PGS iterations, or eliminations of Newton's method.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

import kinema as kn
from benchmarks.articulated.scene import DT, FRICTION, RELAXATION, SPACING, SWEEPS, joint_forces, robot, start, torques
from kinema.scene.description import Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties

OPTIONS = kn.RunOptions(threads=1, on_failure="status", progress=False)
BRICK = Shape("box", (0.1, 0.1, 0.05))
SOLVERS = {
    "newton": {"solver": "newton"},
    "newton, cone": {"solver": "newton", "cone": True},
    "pgs 50": {"solver": "pgs", "iterations": 50},
    "pgs 50, cone": {"solver": "pgs", "iterations": 50, "cone": True},
    f"pgs {SWEEPS}, relaxed": {"solver": "pgs", "iterations": SWEEPS, "relaxation": RELAXATION},
    "pgs until 1e-6": {"solver": "pgs", "iterations": 4000, "tolerance": 1e-6},
    "pgs until 1e-6, warm start": {"solver": "pgs", "iterations": 4000, "tolerance": 1e-6, "warm_start": True},
    "pgs until 1e-12": {"solver": "pgs", "iterations": 4000, "tolerance": 1e-12},
}


@dataclass
class Scenario:
    """One scenario: a scene without its contact options, its initial state and its torques."""

    name: str
    robots: int = 0
    bricks: int = 0
    steps: int = 300
    shaken: bool = True

    def model(self, words: dict) -> kn.Model:
        scene = kn.Scene(contact=kn.Contact(friction=FRICTION, **words))
        scene.add_ground()
        for k in range(self.robots):
            scene.add_robot(robot(), f"dog{k}", pos=(0.0, SPACING * k, 0.0))
        for i in range(self.bricks):
            body = Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(BRICK, mass=2.0), (BRICK,))
            scene.add_robot(Robot(f"r{i}", (body,)), pos=(0.01 * (i % 2), 0.0, 0.05 + 0.1 * i))
        return kn.compile(scene)

    def run(self, model: kn.Model) -> tuple[kn.Trajectory, float, float]:
        """Run once and differentiate; returns the run, its gradient and the times of both [s]."""
        state = kn.State(*start(model)) if self.robots else model.initial_state()
        tau = joint_forces(torques(self.steps, self.robots)) if self.robots and self.shaken else None
        contact, q = model.contact, state.q.requires_grad_()
        record = ["iterations"] if contact.solver == "newton" or contact.tolerance else []
        begin = time.process_time()
        path = kn.simulate(model, state, kn.Control(tau=tau), steps=self.steps, dt=DT, record=record, options=OPTIONS)
        between = time.process_time()
        torch.autograd.grad(path.end.q.sum(), q)
        return path, between - begin, time.process_time() - between


def main() -> None:
    """Print a table."""
    scenarios = (
        Scenario("one quadruped, shaken", robots=1),
        Scenario("one quadruped, standing", robots=1, shaken=False),
        Scenario("ten quadrupeds, shaken", robots=10, steps=100),
        Scenario("five bricks", bricks=5, steps=100),
        Scenario("ten bricks", bricks=10, steps=50),
    )
    for scenario in scenarios:
        print(f"\n{scenario.name}, {scenario.steps} steps\n")
        print("| solver | forward [us] | backward [us] | iterations, mean and most | relative residual, most |")
        print("|---|---|---|---|---|")
        models = {name: scenario.model(words) for name, words in SOLVERS.items()}
        best = dict.fromkeys(models, (float("inf"), float("inf")))
        paths = {}
        for _ in range(4):
            for name, model in models.items():
                paths[name], forward, backward = scenario.run(model)
                best[name] = min(best[name][0], forward), min(best[name][1], backward)
        for name, path in paths.items():
            swept = torch.tensor([float(models[name].contact.iterations)])
            done = path.recorded.get("iterations", swept).detach()[-scenario.steps // 2 :]
            times = " | ".join(f"{1e6 * t / scenario.steps:.1f}" for t in best[name])
            left = float(path.residual.detach().max())
            print(f"| {name} | {times} | {float(done.mean()):.0f}, {float(done.max()):.0f} | {left:.0e} |", flush=True)


if __name__ == "__main__":
    main()
