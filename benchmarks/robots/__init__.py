"""Benchmark of robots that Kinema is not tuned for, piles of bodies and long chains, beside MuJoCo's `mj_step`.

A scene (`scenes.py`) has the same bodies in both engines, and links of a robot collide with each other in both: MJCF
files are read by both, other robots are translated (`kinema.verification.mujoco_scene`), and pairs of bodies of a URDF
file that overlap at the start collide in neither. Kinema runs its default contact law and the law "convex", which is
MuJoCo's. One thread, float64; steps, gradients of steps beside finite differences, and Jacobians of steps.

    kinema bench robots --json --quick
"""
