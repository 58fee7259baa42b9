"""Kinema beside MuJoCo alone, in a minute: one robot and ten.

    python -m benchmarks.articulated.single

Peers, robots and timing as in the whole benchmark (`kinema bench articulated`); `mjd_transitionFD` is timed over 50
steps.
"""

from __future__ import annotations

import torch

from benchmarks.kernels.timing import interleaved_minima

from . import peer_kinema, peer_mujoco, scene

CASES = [(1, 1_000, 20.0), (1, 5_000, 20.0), (10, 500, 20.0)]  # robots, steps, seconds


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    differences = peer_mujoco.Peer()
    differences.prepare(scene.case(1, 50))
    differences.forward()
    slow = interleaved_minima([("differences", differences.backward)], 3.0)["differences"] / 50
    print(f"MuJoCo, mjd_transitionFD: {1e6 * slow:.0f} us per step")
    print("robots   steps   Kinema forward   backward   MuJoCo Newton forward [us per step]   residual")
    for robots, steps, seconds in CASES:
        ours, theirs = peer_kinema.Peer(), peer_mujoco.Peer()
        for peer in (ours, theirs):
            peer.prepare(scene.case(robots, steps))
            peer.forward()
        ours.backward()
        calls = [("forward", ours.forward), ("backward", ours.backward), ("theirs", theirs.forward)]
        times = {n: 1e6 * t / steps for n, t in interleaved_minima(calls, seconds).items()}
        left = ours.contact().residual
        numbers = f"{times['forward']:14.2f}   {times['backward']:8.2f}   {times['theirs']:37.2f}"
        print(f"{robots:6d}   {steps:5d}   {numbers}   {left:.0e}")


if __name__ == "__main__":
    main()
