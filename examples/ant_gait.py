"""Learn a gait by gradient: gymnasium's Ant, loaded from its MJCF file, walks more than a metre in 2.4 s.

Servos replace the motors of the file. The target of each of the eight joints is a constant, a sine and a cosine: 24
parameters in all. The gradient of the distance passes through 240 steps in which feet stick, slide and lift off. Such
objectives have jumps (docs/theory/switches.md), so gradients are clipped to norm 1, and the best gait is kept.
"""

import warnings
from pathlib import Path

import gymnasium
import torch

import kinema as kn

STEPS, DT, RATE = 240, 0.01, 9.0  # [-], [s], [rad/s]
FILE = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml"
CROUCH = (0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)  # hips and ankles [rad]

scene = kn.Scene(friction=1.0)
with warnings.catch_warnings(action="ignore", category=kn.LeftOutWarning):  # a camera, a light, textures
    scene.add_robot(FILE, "ant", drive=kn.Servo(kp=15, kd=1))
model = kn.compile(scene)
time = DT * torch.arange(STEPS, dtype=torch.float64)[:, None]


def walk(gait: torch.Tensor) -> kn.Trajectory:
    """Simulate a gait: mean, sine and cosine of each joint, shape (3, 8) [rad]."""
    targets = gait[0] + gait[1] * torch.sin(RATE * time) + gait[2] * torch.cos(RATE * time)
    return kn.simulate(model, u=targets, steps=STEPS, dt=DT)


def optimise(iterations: int = 100, seed: int = 0) -> tuple[torch.Tensor, list[float]]:
    """Run Adam; return the best gait and the distance [m] of each iteration."""
    random = torch.Generator().manual_seed(seed)
    gait = 0.3 * torch.randn(3, 8, dtype=torch.float64, generator=random)
    gait[0] = torch.tensor(CROUCH)
    best, found = gait.clone(), [0.0]
    optimiser = torch.optim.Adam([gait.requires_grad_()], lr=0.03)
    for _ in range(iterations):
        path = walk(gait)
        x, y = path.end.q[0], path.end.q[1]
        if float(x.detach()) > max(found):
            best = gait.detach().clone()
        found.append(float(x.detach()))
        loss = -x + 0.3 * y**2 + 0.05 * path.v[:, :3].square().mean()  # far, straight, without tumbling
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([gait], 1.0)
        optimiser.step()
    return best, found[1:]


def draw(gait: torch.Tensor, name: str = "out/ant_gait.gif") -> None:
    """Write a video of a gait."""
    camera = kn.Camera.look_at((2.0, -4.2, 2.0), (1.2, 0.0, 0.3), size=(420, 240))
    look = kn.RenderOptions(shadows=True, supersample=2, background=(0.75, 0.86, 0.97))
    with torch.no_grad():
        kn.write_video(name, kn.render(walk(gait), camera, every=5, options=look), fps=20)


def main() -> None:
    """Print the distances and draw the best gait."""
    best, found = optimise()
    for number in range(0, len(found), 20):
        print(f"iteration {number:3d}: {found[number]:6.2f} m")
    draw(best)
    print(f"best {max(found):.2f} m; out/ant_gait.gif")


def check() -> None:
    """The best gait walks farther than 0.8 m and stays upright; the first one walks less than 0.3 m."""
    best, found = optimise()
    end = walk(best).end.q
    assert found[0] < 0.3 < 0.8 < max(found) and end[0] == max(found), found
    assert 0.3 < end[2] < 1.2, end


if __name__ == "__main__":
    main()
