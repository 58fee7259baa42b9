"""Words of URDF files: elements and attributes that are read, those that are known and ignored, and unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from kinema.scene.io.files import short
from kinema.scene.io.xml import Element, close_to

TYPING_ERROR = 0.8  # similarity from which an unknown word is taken for a misspelt one
SHAPES = ("box", "cylinder", "sphere", "capsule", "mesh")
PLACED_BY_ATTRIBUTES = {*("origin", "mass", "inertia", "axis", "mimic", "parent", "child"), *SHAPES}
OF_MOTION = {"link", "joint", "inertial", "mass", "inertia", "axis", "limit", "dynamics", "mimic", "parent", "child"}


class Rule:
    """Attributes and children of an element that are read, and (after a bar) ignored."""

    def __init__(self, attributes: str = "", children: str = "") -> None:
        read, _, ignored = attributes.partition("|")
        self.attributes, self.ignored_attributes = read.split(), ignored.split()
        read, _, ignored = children.partition("|")
        self.children, self.ignored_children = read.split(), ignored.split()


RULES = {
    "robot": Rule("name | version", "link joint material | transmission gazebo sensor ros2_control mujoco"),
    "link": Rule("name | type concave", "inertial visual collision contact | sensor verbose"),
    "inertial": Rule("", "origin mass inertia"),
    "mass": Rule("value"),
    "inertia": Rule("ixx ixy ixz iyy iyz izz"),
    "origin": Rule("xyz rpy"),
    "visual": Rule("name", "origin geometry material | verbose"),
    "collision": Rule("name group mask | concave", "origin geometry | material verbose contact_coefficients"),
    "geometry": Rule("", "box cylinder sphere capsule mesh | material"),
    "box": Rule("size"),
    "cylinder": Rule("radius length"),
    "capsule": Rule("radius length"),
    "sphere": Rule("radius"),
    "mesh": Rule("filename scale"),
    "material": Rule("name", "color | texture specular"),
    "color": Rule("rgba"),
    "contact": Rule(
        "",
        "lateral_friction restitution | rolling_friction spinning_friction friction_anchor stiffness damping "
        "inertia_scaling contact_cfm contact_erp",
    ),
    "lateral_friction": Rule("value"),
    "restitution": Rule("value"),
    "joint": Rule(
        "name type", "origin parent child axis limit dynamics mimic | calibration safety_controller joint_properties"
    ),
    "parent": Rule("link"),
    "child": Rule("link"),
    "axis": Rule("xyz | rpy"),
    "limit": Rule("lower upper effort velocity twist"),
    "dynamics": Rule("damping friction"),
    "mimic": Rule("joint multiplier offset"),
}


Ignore = Callable[[str, Element], None]
"""Notes what is ignored, and where."""


def check_words(root: Element, ignore: Ignore, strict: bool) -> None:
    """Note known words that are not read, and unknown ones, unless these may change the motion.

    An unknown word may change the motion if it looks like a typing error of one that is read, if it belongs to an
    element that places or weighs something, or if it is a word of motion at the wrong place.

    Args:
        root: The robot.
        ignore: Called with a description of every ignored word, and its element.
        strict: Whether to refuse all unknown words.

    Raises:
        ModelError: An unknown word is refused.
    """
    waiting = [root]
    while waiting:
        element = waiting.pop()
        rule = RULES[element.tag]
        if element.text:
            ignore(f"text inside <{element.tag}>", element)
        for name in element.attributes:
            if name in rule.ignored_attributes or ":" in name:
                if not name.startswith("xmlns"):
                    ignore(f"attribute {short(name)} of <{element.tag}>", element)
            elif name not in rule.attributes and name != "xmlns":
                placing = element.tag in PLACED_BY_ATTRIBUTES and not _is_drawn_only(element)
                if strict or placing or _is_misspelt(name, rule.attributes):
                    expected = ", ".join(rule.attributes) or "no attributes"
                    near = close_to(name, rule.attributes + rule.ignored_attributes) or "rename it, or delete it"
                    raise element.error(f"unknown attribute {short(name)}", expected=expected, fix=near)
                ignore(f"unknown attribute {short(name)} of <{element.tag}>", element)
        read = []
        for child in element.children:
            if child.tag.startswith("xacro:"):
                raise child.error("a xacro command", fix="expand the file with xacro first")
            if child.tag in rule.children:
                read.append(child)
            elif child.tag in rule.ignored_children or ":" in child.tag:
                ignore(f"<{short(child.tag)[1:-1]}> in <{element.tag}>", child)
            elif strict or _may_move(child, rule):
                expected = ", ".join(f"<{tag}>" for tag in rule.children) or "no elements"
                fix = close_to(child.tag, rule.children + rule.ignored_children)
                raise child.error(f"unknown element inside <{element.tag}>", expected=expected, fix=fix)
            else:
                ignore(f"unknown <{short(child.tag)[1:-1]}> in <{element.tag}>", child)
        waiting.extend(reversed(read))


def _may_move(element: Element, rule: Rule) -> bool:
    above = element.parent
    assert above is not None
    if above.tag in ("inertial", "geometry"):
        return not _is_drawn_only(above)
    return element.tag in OF_MOTION or _is_misspelt(element.tag, rule.children)


def _is_drawn_only(element: Element) -> bool:
    """Whether an element belongs to a visual."""
    above: Element | None = element
    while above is not None and above.tag != "visual":
        above = above.parent
    return above is not None


def _is_misspelt(word: str, known: list[str]) -> bool:
    return bool(difflib.get_close_matches(word[:64], known, n=1, cutoff=TYPING_ERROR))
