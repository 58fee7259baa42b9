"""Forward mode of simulations, images and torch code between them, against reverse mode and central differences.

Dual numbers of torch's forward mode pass through rollouts: `kinema.fitting.jacobians` batches directions this way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.render import scenes
from tests.soft_scenes import SKIN, moved, solid_scene, varied
from torch import Tensor
from torch.autograd import forward_ad

import kinema as kn
from kinema.errors import InputError, KinemaError
from kinema.fitting.jacobians import jacobian
from kinema.scene.shapes.quadruped import quadruped

STARTS = 2
LEGS = ("fl", "fr", "rl", "rr")
# Of sums of products whose terms have rounding errors of 1e-16, amplified by hundreds of steps in contact.
DUALITY = 1e-10
# Differences: rounding of 1e-16 / h through steps in contact, and h^2; jumps of visibility are 1e4 times larger.
H, CLOSE = 1e-7, 1e-5

QUIET = kn.RunOptions(progress=False)
CONTACTS = (
    kn.Contact(law="compliant", k_e=300.0, k_d=5.0, k_f=30.0),
    kn.Contact(solver="pgs", iterations=30),
    kn.Contact(restitution=0.5),
)

Predict = Callable[[dict[str, Tensor]], Any]


def against_reverse(
    predict: Predict, values: dict[str, Tensor], directions: dict[str, Tensor], limit: float = DUALITY
) -> Tensor:
    """Check w . (J t) = (J^T w) . t for every direction; returns J."""
    found, moved = jacobian(predict, values, directions)
    leaves = {n: t.clone().requires_grad_() for n, t in values.items()}
    again = predict(leaves)
    assert torch.equal(again, found), "candidates of one batch and of another have the same bits"
    w = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    grads = dict(zip(leaves, torch.autograd.grad((again * w).sum(), list(leaves.values())), strict=True))
    for s in range(len(found)):
        for k in range(len(moved)):
            forward = float((moved[k, s] * w[s]).sum())
            terms = [grads[n][s] * d[s, k] for n, d in directions.items()]
            size = sum(float(t.abs().sum()) for t in terms)
            assert size > 0 and abs(forward - sum(float(t.sum()) for t in terms)) <= limit * size, (s, k)
    return moved


def against_differences(predict: Predict, values: dict[str, Tensor], directions: dict[str, Tensor], J: Tensor) -> None:
    """Compare the columns of J with central differences, in the mean over all numbers of a prediction."""
    for k in range(len(J)):
        up, down = (
            predict({n: t + s * H * directions[n][:, k] if n in directions else t for n, t in values.items()})
            for s in (1.0, -1.0)
        )
        seen = (up - down) / (2.0 * H)
        assert float(seen.norm()) > 0
        assert float((seen - J[k]).norm()) <= CLOSE * float(seen.norm()), f"direction {k}"


def random_directions(values: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {n: torch.randn(t.shape[0], count, *t.shape[1:], generator=random, dtype=t.dtype) for n, t in values.items()}


# -- a quadruped ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dog() -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(friction=0.5))
    scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    return kn.compile(scene)


@pytest.fixture(scope="module")
def unknown(dog: kn.Model) -> dict[str, Tensor]:
    """Names of friction, masses and dampings, and starts that slide."""
    v = torch.zeros(STARTS, dog.nv, dtype=torch.float64)
    v[:, 3] = torch.tensor([1.0, 1.5])
    names = ["dog/trunk/mass", *(f"dog/{leg}_shank/mass" for leg in LEGS[:2]), "dog/fl_knee/damping"]
    made = {n: dog.parameters(n)[n].expand(STARTS, *dog.parameters(n)[n].shape).clone() for n in names}
    friction = dog.parameters("friction")["friction"]
    return made | {"friction": friction.repeat(STARTS, 1), "v": v}


def walk(dog: kn.Model, values: dict[str, Tensor], steps: int, **options: Any) -> kn.Trajectory:
    q = dog.initial_state().q
    q[7:], q[2] = torch.tensor(dog.tree.rest[6:]) + torch.linspace(-0.01, 0.02, len(q) - 7), 0.433
    params = {n: t for n, t in values.items() if n != "v"}
    path = kn.simulate(
        dog, kn.State(q, values["v"]), steps=steps, dt=2e-3, params=params, record=("impulse", "gap"), **options
    )
    with torch.no_grad():
        assert (path.recorded["impulse"][..., 0] > 0).flatten(1).any(1).all(), "every world touches the ground"
    return path


def test_trajectories_and_records_of_a_robot_in_contact(dog: kn.Model, unknown: dict[str, Tensor]):
    def predict(values: dict[str, Tensor]) -> Tensor:
        path = walk(dog, values, 60)
        recorded = [path.recorded[n].flatten(1) for n in ("impulse", "gap")]
        return torch.cat([path.q.flatten(1), path.v.square().flatten(1), path.end.q, *recorded], 1)

    directions = random_directions(unknown, 3)
    moved = against_reverse(predict, unknown, directions)
    against_differences(predict, unknown, directions, moved)


def test_images_of_a_robot_in_contact(dog: kn.Model, unknown: dict[str, Tensor]):
    camera = kn.Camera.look_at((1.2, -1.6, 0.7), (0.1, 0.0, 0.25), fov=0.9, size=(24, 20))
    options = kn.RenderOptions(dtype=torch.float64)

    def predict(values: dict[str, Tensor]) -> Tensor:
        seen = kn.render(walk(dog, values, 40), camera, every=20, outputs=("rgb", "alpha"), options=options)
        return torch.cat([seen["rgb"], seen["alpha"].unsqueeze(-1)], -1)

    directions = random_directions(unknown, 2)
    moved = against_reverse(predict, unknown, directions)
    against_differences(predict, unknown, directions, moved)


def test_float32_and_threads(dog: kn.Model, unknown: dict[str, Tensor]):
    """The bits do not depend on threads, and float32 has the precision of its mantissa."""
    scene = kn.Scene(contact=kn.Contact(friction=0.5))
    scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    single = kn.compile(scene, dtype=torch.float32)
    directions = random_directions(unknown, 3)

    def predict(values: dict[str, Tensor], model: kn.Model, threads: int) -> Tensor:
        return walk(model, values, 10, options=kn.RunOptions(threads=threads)).q

    one, two = (jacobian(lambda x, n=n: predict(x, dog, n), unknown, directions) for n in (1, 2))
    assert torch.equal(one[1], two[1])
    rough = {n: t.float() for n, t in unknown.items()}, {n: t.float() for n, t in directions.items()}
    _, found = jacobian(lambda x: predict(x, single, 1), *rough)
    assert found.dtype == torch.float32
    # rounding of 6e-8 times the condition of ten contact problems, whose light shanks are 1e-3 of the whole
    assert float((found - one[1]).norm() / one[1].norm()) < 1e-2


# -- soft matter and other steps --------------------------------------------------------------------------------


@pytest.mark.parametrize(("integrator", "substeps", "limit"), [("euler", 2, DUALITY), ("implicit", 1, 1e-8)])
def test_a_soft_block_in_contact(integrator: str, substeps: int, limit: float):
    """Implicit steps are solved to 1e-10 of the displacement, and so is the linear system of their adjoint."""
    model = solid_scene()
    names = ("cube/mu", "ball/lam", "skin_k_e")
    values = {n: t.repeat(STARTS, *[1] * t.ndim) for n, t in varied(model, names, 0).items()}
    x, xd = moved(model, 0)
    values |= {"xd": torch.stack([xd, 0.5 * xd])}

    def predict(values: dict[str, Tensor]) -> Tensor:
        given = {n: values[n] for n in names}
        start = kn.State(x=x, xd=values["xd"])
        path = kn.simulate(
            model, start, steps=20, dt=5e-4, substeps=substeps, params=given, integrator=integrator, options=QUIET
        )
        assert float(path.x[..., 2].detach().min()) < SKIN.radius, "the ground is touched"
        return path.x.flatten(1)

    directions = {n: t * model.parameters(n)[n] if n in names else t for n, t in random_directions(values, 2).items()}
    against_differences(predict, values, directions, against_reverse(predict, values, directions, limit))


@pytest.mark.parametrize("contact", CONTACTS, ids=lambda one: f"{one.law} {one.solver}")
def test_a_box_under_other_laws_of_contact(contact: kn.Contact):
    scene = kn.Scene(contact=contact)
    scene.add_ground()
    scene.add_body(kn.Box((0.5, 0.4, 0.3)), "box", mass=1.0, pos=(0.0, 0.0, 0.3), rot=kn.quaternion(0.4, "y"))
    model = kn.compile(scene)
    v = torch.zeros(STARTS, model.nv, dtype=torch.float64)
    v[:, 3], v[:, 5] = torch.tensor([0.5, 1.0]), -1.0
    values = {"v": v, "box/body/mass": torch.tensor([1.0, 1.3], dtype=torch.float64)}

    def predict(values: dict[str, Tensor]) -> Tensor:
        start = kn.State(model.initial_state().q, values["v"])
        given = {"box/body/mass": values["box/body/mass"]}
        path = kn.simulate(model, start, steps=150, dt=1e-3, params=given, record="gap")
        assert float(path.recorded["gap"].detach().min()) < 0.0 or not model.contact.restitution, "the ground is hit"
        return path.q.flatten(1)

    directions = random_directions(values, 2)
    against_differences(predict, values, directions, against_reverse(predict, values, directions))


# -- images of surfaces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sharp", "soft", "supersampled"])
def test_all_inputs_of_images(mode: str):
    """Faces that hide and cut each other; textures, lights, camera, softness."""
    drawn = [scenes.numbers(seed) for seed in range(STARTS)]
    values = {n: torch.stack([one[n] for one in drawn]) for n in drawn[0]}
    soft = kn.Soft() if mode == "soft" else None
    times = 2 if mode == "supersampled" else 1

    def predict(x: dict[str, Tensor]) -> Tensor:
        options = kn.RenderOptions(
            background=x["background"], sigma=x["sigma"], lights=scenes.lights(x), soft=soft, supersample=times
        )
        names = ("rgb", "alpha", "depth", "normal") if mode == "sharp" else ("rgb", "alpha")
        seen = kn.render(scenes.surfaces(x), scenes.camera(x), outputs=names, options=options)
        return torch.cat([seen[n].flatten(1) for n in names], 1)

    directions = random_directions(values, 2)
    w = directions["R"]  # R must stay a rotation
    directions["R"] = values["R"].unsqueeze(1) @ (w - w.mT)
    against_reverse(predict, values, directions)


# -- the function -----------------------------------------------------------------------------------------------


def test_several_outputs_and_absent_directions():
    values = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0])}
    found, moved = jacobian(
        lambda v: {"product": v["a"] * v["b"], "b": v["b"].unsqueeze(1)}, values, {"a": torch.ones(2, 1)}
    )
    assert found["product"].tolist() == [3.0, 8.0] and moved["product"].tolist() == [[3.0, 4.0]]
    assert moved["b"].shape == (1, 2, 1) and not moved["b"].any()


def test_mistakes():
    values = {"a": torch.ones(2, 3)}
    with pytest.raises(InputError, match="no direction"):
        jacobian(lambda v: v["a"], values, {})
    with pytest.raises(InputError, match="unknown values"):
        jacobian(lambda v: v["a"], values, {"b": torch.ones(2, 1, 3)})
    with pytest.raises(InputError, match="wrong shape"):
        jacobian(lambda v: v["a"], values, {"a": torch.ones(1, 2, 3)})
    with pytest.raises(InputError, match="no axis of candidates"):
        jacobian(lambda v: v["a"].sum(), values, {"a": torch.ones(2, 4, 3)})


def test_both_modes_at_once_are_refused(dog: kn.Model, unknown: dict[str, Tensor]):
    v = unknown["v"]
    with forward_ad.dual_level():
        given = {**unknown, "v": forward_ad.make_dual(v, v), "friction": unknown["friction"].clone().requires_grad_()}
        with pytest.raises(KinemaError, match="forward mode and reverse mode"):
            walk(dog, given, 3)
