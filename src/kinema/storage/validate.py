"""Validation of model arrays from untrusted files: native code relies on their shapes and indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from kinema.contact.collision.pair_table import FAMILIES, PAIRS
from kinema.model.actuators import KINDS as ACTUATORS
from kinema.model.bends import BendArrays
from kinema.model.broad_phase import PAIR
from kinema.model.model import Model
from kinema.model.tree import add_branches, path_of_link
from kinema.scene.activation import KINDS as ACTIVATIONS
from kinema.scene.convex_hull import Hull
from kinema.scene.description import Mesh
from kinema.scene.joint_types import ANGLE, MOVING
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.storage.rules import require, require_indices, require_reals
from kinema.storage.validate_matter import check_matter
from kinema.storage.validate_softness import check_softness


def check_model(model: Model) -> None:
    """Raise ModelError unless shapes, dtypes and ranges of all arrays could come from `compile`."""
    require(model.dtype in (torch.float32, torch.float64), "dtype")
    require_reals("gravity", model.gravity, (3,))
    _check_tree(model)
    _check_constraints(model)
    _check_actuators(model)
    _check_transmissions(model)
    keyframes, frames = model.keyframes, len(model.keyframes.names)
    for name, size in (
        ("q", model.nq),
        ("v", model.nv),
        ("u", len(model.actuators.names)),
        ("act", len(model.activations)),
    ):
        require_reals(f"keyframes/{name}", getattr(keyframes, name), (frames, size))
    _check_sites(model)
    _check_shapes(model)
    _check_visuals(model)
    _check_candidates(model)
    if model.soft is not None:
        check_softness(model, model.soft)
    require((model.soft is not None) == model.contact.convex, "softness")
    check_matter(model)


def _check_tree(model: Model) -> None:
    tree = model.tree
    joints, bodies = len(tree.joints), len(tree.bodies)
    require(len({*tree.joints}) == joints and len({*tree.bodies}) == bodies, "names of joints and bodies")
    require_indices("kind", tree.kind, (joints,), len(MOVING))
    require_indices("parent", tree.parent, (joints,), joints)
    require((tree.parent <= np.arange(joints)).all(), "parent")
    counts, sizes = [one.velocities for one in tree.types], tree.coordinates
    root: list[int] = []
    for i, parent in enumerate(tree.parent):
        root.append(root[parent - 1] if parent else i + 1)
    _same("root", tree.root, root)
    _same("dofs", tree.dofs, counts)
    _same("q_start", tree.q_start, np.cumsum([0, *sizes])[:-1])
    _same("v_start", tree.v_start, np.cumsum([0, *counts])[:-1])
    again = replace(tree)
    add_branches(again)
    for name in ("row", "depth", "last", "above"):
        _same(name, getattr(tree, name), getattr(again, name))
    require_indices("body_link", tree.body_link, (bodies,), joints + 1)
    for names, count in ((("offset", "axis"), joints), (("body_offset", "com"), bodies)):
        for name in names:
            require_reals(name, getattr(tree, name), (count, 3))
    require_reals("rotation", tree.rotation, (joints, 3, 3))
    require_reals("body_rotation", tree.body_rotation, (bodies, 3, 3))
    require_reals("mass", tree.mass, (bodies,))
    require_reals("gravcomp", tree.gravcomp, (bodies,))
    drags = len(tree.dragged)
    require_indices("dragged", tree.dragged, (drags,), bodies)
    require((tree.body_link[tree.dragged] > 0).all(), "dragged")
    for name, shape in (("drag_box", (3,)), ("drag_rotation", (3, 3)), ("wind", (3,))):
        require_reals(name, getattr(tree, name), (drags, *shape))
    for name in ("fluid_density", "fluid_viscosity"):
        require_reals(name, getattr(tree, name), (drags,))
    require_reals("inertia", tree.inertia, (bodies, 6))
    require((tree.mass >= 0).all(), "mass")
    for name in ("armature", "damping", "stiffness", "rest"):
        require_reals(name, getattr(tree, name), (sum(counts),))
    require_reals("q", tree.q, (sum(sizes),))
    require_indices("prescribed", tree.prescribed, (joints,), 2)


def _check_constraints(model: Model) -> None:
    rows, nv, nq, links = model.constraints, model.nv, model.nq, len(model.joints) + 1
    single: dict[str, int | tuple[int, ...]] = {"dof": nv, "leader": nv, "q": nq, "leader_q": nq}
    single |= {"ball": 2, "transmission": len(model.transmissions.tendon_names), "first": nv}
    single["higher"] = (3,)
    single |= dict.fromkeys(("multiplier", "offset", "friction", "lower", "upper"), ())
    loop: dict[str, int | tuple[int, ...]] = {"first": links, "second": links, "welded": 2}
    loop |= {f"{end}_place": (3,) for end in ("first", "second")}
    loop |= {f"{end}_turn": (3, 3) for end in ("first", "second")}
    tables = (
        ("followers", rows.followers, rows.follower_names, single, "dof leader q leader_q multiplier offset higher"),
        ("rubbing", rows.rubbing, rows.rubbing_names, single, "dof friction"),
        ("stops", rows.stops, rows.stop_names, single, "transmission lower upper first second"),
        ("limits", rows.limits, rows.limit_names, single, "dof q lower upper ball"),
        ("loops", rows.loops, rows.loop_names, loop, " ".join(loop)),
    )
    second = rows.stops.get("second", np.zeros(0, np.int32))
    require(second.dtype.kind == "i" and bool(((second >= -1) & (second < nv)).all()), "the array second of stops")
    for table, arrays, names, rules, wanted in tables:
        require(set(arrays) == set(wanted.split()), f"the arrays of {table}")
        for name, array in arrays.items():
            if (table, name) == ("stops", "second"):  # may be -1
                require(len(array) == len(names), "the array second of stops")
                continue
            rule = rules[name]
            if isinstance(rule, int):
                require_indices(f"{table}/{name}", array, (len(names),), rule)
            else:
                require_reals(f"{table}/{name}", array, (len(names), *rule))
    balls, tree = rows.limits["ball"] > 0, model.tree
    angled = np.array([one.limit == ANGLE for one in tree.types], bool)
    starts = set(zip(tree.v_start[angled], tree.q_start[angled], strict=True))
    limited = set(zip(rows.limits["dof"][balls], rows.limits["q"][balls], strict=True))
    require(limited <= starts and (np.diff(rows.limits["ball"]) >= 0).all(), "limits of ball joints")


def _check_actuators(model: Model) -> None:
    actuators, count = model.actuators, len(model.actuators.names)
    for name, below in (("dof", model.nv), ("q", model.nq), ("kind", len(ACTUATORS))):
        require_indices(f"actuators/{name}", getattr(actuators, name), (count,), below)
    for name in ("gear", "kp", "kd", "lower", "upper", "force"):
        require_reals(f"actuators/{name}", getattr(actuators, name), (count,))
    states = model.activations
    require(states.row.dtype == np.int32 and states.row.shape == (count,), "activations/row")
    require((states.row[states.actuators] == np.arange(len(states))).all(), "activations/row")
    for name, below in (("kind", len(ACTIVATIONS)), ("early", 2)):
        require_indices(f"activations/{name}", getattr(states, name), (len(states),), below)
    for name, shape in (("times", (3,)), ("least", ()), ("most", ())):
        require_reals(f"activations/{name}", getattr(states, name), (len(states), *shape))


def _check_transmissions(model: Model) -> None:
    arrays, tendons = model.transmissions, len(model.transmissions.tendon_names)
    count, entries = len(arrays.begin) - 1, len(arrays.dof)
    require(count >= tendons and int(arrays.begin[0]) == 0, "transmissions/begin")
    require((np.diff(arrays.begin) >= 0).all() and int(arrays.begin[-1]) == entries, "transmissions/begin")
    require_indices("transmissions/dof", arrays.dof, (entries,), model.nv)
    require_indices("transmissions/q", arrays.q, (entries,), model.nq)
    require_reals("transmissions/coefficient", arrays.coefficient, (entries,))
    require_indices("transmissions/linear", arrays.linear, (len(arrays.linear),), count)
    require_reals("transmissions/offset", arrays.offset, (len(arrays.linear),))
    at_sites, general = len(arrays.site), len(arrays.actuator)
    require_indices("transmissions/site", arrays.site, (at_sites,), len(model.sites.names))
    require_indices("transmissions/site_transmission", arrays.site_transmission, (at_sites,), count)
    require_reals("transmissions/wrench", arrays.wrench, (at_sites, 6))
    for which, site in zip(arrays.site_transmission.tolist(), arrays.site.tolist(), strict=True):
        path = path_of_link(model.tree, int(model.sites.link[site]))
        require(arrays.dof[arrays.entries(which)].tolist() == path, "transmissions/dof")
    points, ways = len(arrays.path_site), len(arrays.path_transmission)
    require_indices("transmissions/path_transmission", arrays.path_transmission, (ways,), tendons)
    require_indices("transmissions/path_site", arrays.path_site, (points,), len(model.sites.names))
    for name, last, size in (("path_begin", points, ways), ("path_start", len(arrays.path_entry), points)):
        given = getattr(arrays, name)
        require_indices(f"transmissions/{name}", given, (size + 1,), last + 1)
        require(int(given[0]) == 0 and int(given[-1]) == last and (np.diff(given) >= 0).all(), f"transmissions/{name}")
    require_indices("transmissions/path_entry", arrays.path_entry, (len(arrays.path_entry),), max(entries, 1))
    for s, site in enumerate(arrays.path_site.tolist()):
        at = arrays.path_entry[int(arrays.path_start[s]) : int(arrays.path_start[s + 1])]
        require(arrays.dof[at].tolist() == path_of_link(model.tree, int(model.sites.link[site])), "transmissions/dof")
    for name in ("stiffness", "damping", "least_rest", "most_rest"):
        require_reals(f"transmissions/{name}", getattr(arrays, name), (tendons,))
    require_indices("transmissions/actuator", arrays.actuator, (general,), len(model.actuators.names))
    require_indices("transmissions/driven", arrays.driven, (general,), count)
    for name, shape in (("gain", (3,)), ("bias", (3,)), ("least_force", ())):
        require_reals(f"transmissions/{name}", getattr(arrays, name), (general, *shape))
    _check_bends(model, arrays.bends)
    muscles = len(arrays.muscle)
    require_indices("transmissions/muscle", arrays.muscle, (muscles,), len(model.actuators.names))
    require_indices("transmissions/pulled", arrays.pulled, (muscles,), count)
    for name, shape in (("curve", (8,)), ("lengths", (2,)), ("least_pull", ())):
        require_reals(f"transmissions/{name}", getattr(arrays, name), (muscles, *shape))


def _check_bends(model: Model, bends: BendArrays) -> None:
    dof, tendons = model.transmissions.dof, len(model.transmissions.tendon_names)
    legs, ends = len(bends.first), len(bends.end_link)
    require_indices("bends/transmission", bends.transmission, (len(bends),), tendons)
    for name, last, size in (("begin", legs, len(bends)), ("end_start", len(bends.end_entry), ends)):
        given = getattr(bends, name)
        require_indices(f"bends/{name}", given, (size + 1,), last + 1)
        require(int(given[0]) == 0 and int(given[-1]) == last and (np.diff(given) >= 0).all(), f"bends/{name}")
    for name in ("first", "second"):
        require_indices(f"bends/{name}", getattr(bends, name), (legs,), max(ends, 1))
    for name in ("around", "side"):
        require_indices(f"bends/{name}", getattr(bends, name) + np.int32(1), (legs,), ends + 1)
    require_indices("bends/cylinder", bends.cylinder, (legs,), 2)
    for name, shape in (("axes", (legs, 3, 3)), ("radius", (legs,)), ("share", (legs,)), ("end_place", (ends, 3))):
        require_reals(f"bends/{name}", getattr(bends, name), shape)
    require_indices("bends/end_site", bends.end_site + np.int32(1), (ends,), len(model.sites.names) + 1)
    require_indices("bends/end_link", bends.end_link, (ends,), len(model.joints) + 1)
    require_indices("bends/end_entry", bends.end_entry, (len(bends.end_entry),), max(len(dof), 1))
    sides = set(bends.side.tolist())
    for i, link in enumerate(bends.end_link.tolist()):
        at = bends.end_entry[int(bends.end_start[i]) : int(bends.end_start[i + 1])]
        path = [] if i in sides else path_of_link(model.tree, link)
        require(dof[at].tolist() == path, "bends/end_entry")


def _check_sites(model: Model) -> None:
    sites, count = model.sites, len(model.sites.names)
    require_indices("sites/link", sites.link, (count,), len(model.joints) + 1)
    require_reals("sites/offset", sites.offset, (count, 3))
    require_reals("sites/rotation", sites.rotation, (count, 3, 3))


def _check_shapes(model: Model) -> None:
    shapes, count = model.shapes, len(model.shapes.names)
    require({*shapes.kind} <= {*SHAPE_KINDS} and len(shapes.kind) == count, "kinds of shapes")
    require_indices("shapes/link", shapes.link, (count,), len(model.joints) + 1)
    for name, shape in (("offset", (3,)), ("rotation", (3, 3)), ("size", (3,))):
        require_reals(f"shapes/{name}", getattr(shapes, name), (count, *shape))
    for name in ("reach", "friction", "restitution"):
        require_reals(f"shapes/{name}", getattr(shapes, name), (count,))
    require(len(shapes.hulls) == len(shapes.meshes) == count, "hulls and meshes of shapes")
    for kind, mesh, hull in zip(shapes.kind, shapes.meshes, shapes.hulls, strict=True):
        require((mesh is not None) == SHAPE_KINDS[kind].concave, "meshes of terrain")
        if mesh is not None:
            _check_mesh(mesh)
        if hull is not None:
            _check_hull(hull)


def _check_visuals(model: Model) -> None:
    visuals, count = model.visuals, len(model.visuals.names)
    require({*visuals.kind} <= {*SHAPE_KINDS} and len(visuals.kind) == len(visuals.meshes) == count, "kinds of visuals")
    require_indices("visuals/body", visuals.body + np.int32(1), (count,), len(model.bodies) + 1)
    require_indices("visuals/shape", visuals.shape + np.int32(1), (count,), len(model.shapes.names) + 1)
    for name, shape in (("offset", (3,)), ("rotation", (3, 3)), ("size", (3,)), ("colour", (3,))):
        require_reals(f"visuals/{name}", getattr(visuals, name), (count, *shape))
    for kind, mesh in zip(visuals.kind, visuals.meshes, strict=True):
        require((mesh is not None) == SHAPE_KINDS[kind].meshed, "meshes of visuals")
        if mesh is not None:
            _check_mesh(mesh)


def _check_mesh(mesh: Mesh) -> None:
    corners = len(mesh.vertices)
    require_reals("vertices", mesh.vertices, (corners, 3))
    require(mesh.faces.ndim == 2 and mesh.faces.shape[1] == 3 and mesh.faces.dtype.kind in "iu", "faces")
    require(((mesh.faces >= 0) & (mesh.faces < corners)).all(), "faces")


def _check_hull(hull: Hull) -> None:
    corners, faces = len(hull.vertices), len(hull.faces)
    require_reals("corners of a hull", hull.vertices, (corners, 3))
    require(corners >= 4 and faces >= 4, "corners and faces of a hull")
    require(all(len(loop) >= 3 and all(0 <= c < corners for c in loop) for loop in hull.faces), "faces of a hull")
    edges = hull.edges
    require(edges.ndim == 2 and edges.shape[1] == 4 and edges.dtype.kind in "iu", "edges of a hull")
    require(((edges >= 0) & (edges < [corners, corners, faces, faces])).all(), "edges of a hull")


def _check_candidates(model: Model) -> None:
    candidates, shapes, links = model.candidates, model.shapes, len(model.joints) + 1
    count, kinds = len(candidates.names), model.shapes.kind
    require_indices("candidates/first", candidates.first, (count,), links)
    require_indices("candidates/second", candidates.second, (count,), links)
    for name in ("friction", "restitution"):
        require_reals(f"candidates/{name}", getattr(candidates, name), (count,))
    taken = np.zeros(count, int)
    for family, pairs in candidates.pairs.items():
        name, _, terrain = family.partition(" ")
        require(set(pairs) == set(PAIR) and name in FAMILIES, f"pairs {family!r}")
        known = FAMILIES[name]
        rows = pairs["first"].size
        for which in ("first", "second"):
            require_indices(f"{family}/{which}", pairs[which], (rows,), len(kinds))
        require_indices(f"{family}/start", pairs["start"], (rows,), count - known.candidates + 1)
        for a, b, start in zip(*(pairs[n].tolist() for n in PAIR), strict=True):
            require(PAIRS.get((kinds[a], kinds[b])) == known, f"pairs {family!r}")
            require(terrain == (str(b) if known.terrain else ""), f"pairs {family!r}")
            if known.hulls:
                cornered = [s for s in (a, b) if SHAPE_KINDS[kinds[s]].corners is not None]
                require(all(shapes.hulls[s] is not None for s in cornered), f"hulls of {family!r}")
            taken[start : start + known.candidates] += 1
        if terrain:
            knobs = candidates.knobs.get(family, {})
            require(set(knobs) == {"at", "swell", "capsule"}, f"knobs {family!r}")
            require_reals(f"{family}/at", knobs["at"], (rows, 3))
            require_reals(f"{family}/swell", knobs["swell"], (rows,))
            require_indices(f"{family}/capsule", knobs["capsule"], (rows,), 2)
    require((taken == 1).all(), "places of candidates")


def _same(what: str, array: np.ndarray, wanted: Sequence[int] | np.ndarray) -> None:
    require(array.dtype == np.int32 and np.array_equal(array, np.asarray(wanted, np.int32)), what)
