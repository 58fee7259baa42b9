"""Baselines of `mass-from-video`: REINFORCE, and a network that is trained on generated videos."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinema.experiments.pushed import DENSITY, Pushed

F64 = torch.float64
SIZE, EVERY = 64, 30  # of images [pixels], and steps between them
SAMPLES, NOISE, DECAY = 5, 0.05, 0.925  # gradSim's settings [Jatavallabhula et al. 2021, Table 5]
RATE = 0.2  # step of the logarithm of the density, for rewards of standard deviation 1
TRAINED_FROM = 1_000_000  # first seed of the training objects
BATCH, LEARNING = 32, 1e-3


def reinforce(body: Pushed, steps: int, seed: int) -> float:
    """The density found by REINFORCE from the first guess, on the video of small images [kg/m^3]."""
    random = torch.Generator().manual_seed(seed)
    target = body.video(SIZE, EVERY)
    mean = torch.tensor(math.log(body.guess), dtype=F64)
    low, high = math.log(0.5 * DENSITY[0]), math.log(2.0 * DENSITY[1])
    for step in range(steps):
        drawn = torch.randn(SAMPLES, generator=random, dtype=F64)
        images = body.film((mean + NOISE * drawn).exp(), SIZE, EVERY)
        reward = -(images - target).square().flatten(2).sum(2).sqrt().sum(1)
        reward = (reward - reward.mean()) / reward.std().clamp_min(1e-12) * DECAY**step
        mean = (mean + RATE * (reward * drawn).mean()).clamp(low, high)
    return float(mean.exp())


class Network(nn.Module):
    """Convolutions over all images at once, then layers that also see the push: the logarithm of the density."""

    def __init__(self, images: int) -> None:
        """Make the layers."""
        super().__init__()
        self.see = nn.Sequential(
            nn.Conv2d(images, 16, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.think = nn.Sequential(
            nn.Linear(32 * (SIZE // 8) ** 2 + 6, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, video: Tensor, push: Tensor) -> Tensor:
        """From images (batch, images, height, width) and pushes (batch, 6)."""
        found: Tensor = self.think(torch.cat([self.see(video), push], -1))
        return found.squeeze(-1)


def network(shapes: Sequence[str], seeds: Sequence[int], videos: int, epochs: int) -> dict[str, Any]:
    """Train on videos of other objects; returns the densities of the test objects [kg/m^3], and the training mean."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        train = [Pushed(shapes[i % len(shapes)], TRAINED_FROM + i // len(shapes)) for i in range(videos)]
        video, push, truth = _seen(train)
        model = Network(video.shape[1])
        optimiser = torch.optim.Adam(model.parameters(), LEARNING)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
        losses = []
        for _ in range(epochs):
            order = torch.randperm(videos)
            total = 0.0
            for part in order.split(BATCH):
                loss = (model(video[part], push[part]) - truth[part]).square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += float(loss.detach()) * len(part)
            schedule.step()
            losses.append(total / videos)
    names = [(shape, seed) for seed in seeds for shape in shapes]
    test = [Pushed(shape, seed) for shape, seed in names]
    video, push, _ = _seen(test)
    with torch.no_grad():
        found = model(video, push).exp().tolist()
    return {
        "found": {f"{shape}, seed {seed}": one for (shape, seed), one in zip(names, found, strict=True)},
        "average": sum(body.density for body in train) / len(train),
        "losses": losses,
    }


def _seen(bodies: Sequence[Pushed]) -> tuple[Tensor, Tensor, Tensor]:
    """Grey videos, pushes, and logarithms of densities."""
    videos = torch.stack([body.video(SIZE, EVERY).mean(-1).float() for body in bodies])
    pushes = torch.stack([body.push / body.push[3:].norm() for body in bodies]).float()
    return videos, pushes, torch.tensor([math.log(body.density) for body in bodies])
