"""A 1:10 racing car with steering."""

from __future__ import annotations

from kinema.errors import InputError
from kinema.scene.description import BOX, CYLINDER, FREE, REVOLUTE, SPHERE, Actuator, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import cylinder_between, mass_properties

CHASSIS = (0.40, 0.16, 0.06)  # m
CLEARANCE = 0.03  # m: ground clearance of the chassis
WHEELBASE, TRACK = 0.32, 0.24  # m: between axles, between wheel centres of one axle
RADIUS, WIDTH = 0.05, 0.045  # m: of a wheel
LOCK = 0.45  # rad


def racecar(name: str = "racecar", wheels: str = SPHERE, damping: float = 1e-3) -> Robot:
    """A free chassis, steered front wheels and rear wheels: 12 degrees of freedom, 5 bodies, 4.4 kg.

    The robot's origin is on the ground below the middle of the chassis, x forward, y to the left, z up. At zero the
    wheels touch the ground and point forward. Front wheels have two joints, "steer_*" about z within 0.45 rad (positive
    is to the left) and then "roll_*" about y; rear wheels have only "roll_*" (positive is forward).

    Wheels collide as spheres of the same radius, which is exact while they are upright on a plane, or as the rendered
    cylinders, if the ground collides with cylinders. The chassis collides as a box.

    Actuators: "steer_left" and "steer_right" take a target angle [rad], "drive_*" of the four wheels a torque [N m].

    Args:
        name: Name of the robot.
        wheels: Collision shape of the wheels, "sphere" or "cylinder".
        damping: Damping of the axles [N m s/rad].

    Raises:
        InputError: The wheel shape is unknown.
    """
    if wheels not in (SPHERE, CYLINDER):
        raise InputError("unknown wheel shape", got=repr(wheels), expected=f"{SPHERE!r} or {CYLINDER!r}")
    box = Shape(BOX, (CHASSIS[0] / 2, CHASSIS[1] / 2, CHASSIS[2] / 2), name="chassis")
    height = CLEARANCE + CHASSIS[2] / 2
    bodies = [
        Body("chassis", None, Pose((0.0, 0.0, height)), (Joint("free", FREE),), mass_properties(box, mass=3.0), (box,))
    ]
    tyre = cylinder_between((0.0, -WIDTH / 2, 0.0), (0.0, WIDTH / 2, 0.0), RADIUS, collides=wheels == CYLINDER)
    ball = Shape(SPHERE, (RADIUS,), name="tyre", visible=False)
    drives: list[Actuator] = []
    for end, x in (("front", WHEELBASE / 2), ("rear", -WHEELBASE / 2)):
        for side, y in (("left", TRACK / 2), ("right", -TRACK / 2)):
            wheel, joints = f"{end}_{side}", []
            if end == "front":
                steer = Joint(
                    f"steer_{side}", REVOLUTE, lower=-LOCK, upper=LOCK, effort=2.0, armature=1e-3, damping=0.02
                )
                joints.append(steer)
                drives.append(
                    Actuator(steer.name, steer.name, "position", kp=5.0, kd=0.1, lower=-LOCK, upper=LOCK, force=2.0)
                )
            joints.append(Joint(f"roll_{wheel}", REVOLUTE, (0.0, 1.0, 0.0), effort=1.0, armature=1e-4, damping=damping))
            drives.append(Actuator(f"drive_{wheel}", f"roll_{wheel}", lower=-1.0, upper=1.0, force=1.0))
            shapes = (tyre, ball) if wheels == SPHERE else (tyre,)
            place = Pose((x, y, RADIUS - height))
            bodies.append(Body(wheel, "chassis", place, tuple(joints), mass_properties(tyre, mass=0.35), shapes))
    return Robot(name, tuple(bodies), tuple(drives))
