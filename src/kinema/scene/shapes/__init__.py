"""Procedural shapes and robots, one to a file: `from kinema.scene.shapes.ant import ant`.

ant, arm (with gripper), golf (golfer and golf_ball), humanoid, pendulum, quadruped, racecar, random_tree: robots
block: soft bodies, in tetrahedra
solids: mass properties of shapes
hull: convex hulls of points
height_field: terrain from heights
"""
