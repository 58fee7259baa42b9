"""Procedural shapes and robots, one to a file: `from kinema.scene.shapes.ant import ant`.

ant, arm (with gripper), golf (golfer and golf_ball), humanoid, pendulum, quadruped, racecar, random_tree: robots
block, beam, ball, gear: solids, in tetrahedra; block also finds the surface of any of them
sheet (also rolled), walker (flat, on legs): cloth and shells, in triangles
sizes: checks of the numbers these are made from
solids: mass properties of shapes
hull: convex hulls of points
height_field: terrain from heights
"""
