"""Procedural robots and meshes: `kn.shapes.quadruped()`, `kn.shapes.block((4, 4, 4), 0.1)`.

- Robots: ant, arm (with a gripper), golfer and golf_ball, humanoid, pendulum, quadruped, racecar, random_tree
- Tetrahedral solids: ball, beam, block, gear; surface extracts their boundary triangles
- Cloth and shells, triangle meshes: rolled_sheet, sheet, walker (flat, on legs)
- Closed triangle meshes of everyday forms: toy, with the names TOYS
- Terrain: height_field
- TOUCH: x coordinate at which the golf ball touches the golfer's club [m]
"""

from kinema.scene.shapes.ant import ant as ant
from kinema.scene.shapes.arm import arm as arm
from kinema.scene.shapes.ball import ball as ball
from kinema.scene.shapes.beam import beam as beam
from kinema.scene.shapes.block import block as block
from kinema.scene.shapes.block import surface as surface
from kinema.scene.shapes.gear import gear as gear
from kinema.scene.shapes.golf import TOUCH as TOUCH
from kinema.scene.shapes.golf import golf_ball as golf_ball
from kinema.scene.shapes.golf import golfer as golfer
from kinema.scene.shapes.height_field import height_field as height_field
from kinema.scene.shapes.humanoid import humanoid as humanoid
from kinema.scene.shapes.pendulum import pendulum as pendulum
from kinema.scene.shapes.quadruped import quadruped as quadruped
from kinema.scene.shapes.racecar import racecar as racecar
from kinema.scene.shapes.random_tree import random_tree as random_tree
from kinema.scene.shapes.sheet import rolled_sheet as rolled_sheet
from kinema.scene.shapes.sheet import sheet as sheet
from kinema.scene.shapes.toys import TOYS as TOYS
from kinema.scene.shapes.toys import toy as toy
from kinema.scene.shapes.walker import walker as walker
