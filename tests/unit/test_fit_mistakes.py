"""Mistakes of users of `kn.fit`, `kn.landscape` and results: what the errors say, before anything is simulated."""

import math

import pytest
import torch

import kinema as kn

F64 = torch.float64
OPTIONS = kn.fit.Options(progress=False)


class Thrown:
    """A ball that falls, observed as a film and as a path."""

    def __init__(self):
        self.scene = kn.Scene()
        self.scene.add_ground()
        self.scene.add_body(kn.Sphere(0.15), mass=1.0, pos=(-0.6, 0.0, 0.8), name="ball")
        self.model = kn.compile(self.scene)
        camera = kn.Camera.look_at((0.0, -3.0, 0.8), (0.0, 0.0, 0.5), size=(16, 12))
        self.film = kn.fit.Experiment(self.model, kn.fit.Images(camera, every=20), steps=100, dt=2e-3)
        self.path = kn.fit.Experiment(self.model, kn.fit.States("q", every=20), steps=100, dt=2e-3)
        own = {"ball/friction": torch.full((1,), 0.5, dtype=F64)}
        with torch.no_grad():
            self.images, self.states = self.film(own)[0], self.path(own)[0]


BALL = Thrown()
FILM, PATH, IMAGES, STATES = BALL.film, BALL.path, BALL.images, BALL.states
RUBS = {"ball/friction": kn.fit.Log(0.1, 1.0)}


def fit(predict=PATH, target=STATES, unknown=RUBS, options=OPTIONS, **more):
    return kn.fit(predict, target, unknown, options=options, **more)


def timeless(values):
    return STATES.expand(len(values["a"]), *STATES.shape)


BOTH = {"ball/friction": RUBS["ball/friction"], "*/friction": kn.fit.Log(0.1, 1.0)}
WHOLE = {"ball": kn.fit.Inertia(), "ball/mass": kn.fit.Log(0.1, 2.0)}
MOVED = kn.fit.Experiment(BALL.model, kn.fit.Images(lambda values: values["eye"]), steps=2, dt=0.1)
TWO = {"ball/friction": kn.fit.Log(0.1, 1.0, worlds=2), "ball/mass": kn.fit.Log(0.1, 2.0, worlds=3)}

MISTAKES = {  # what is done, what the error says
    "an array as data": (lambda: fit(target=STATES.numpy()), "ndarray.*torch.as_tensor"),
    "a file as data": (lambda: fit(FILM, "dog.mp4"), r"str.*kn\.read_video\('dog\.mp4'\)"),
    "a trajectory as data": (lambda: fit(target=kn.simulate(BALL.model, steps=2, dt=0.1)), "Trajectory.*film"),
    "bytes as data": (lambda: fit(FILM, (255 * IMAGES).to(torch.uint8)), r"uint8.*kn\.to_linear"),
    "bytes as floats": (lambda: fit(FILM, 255 * IMAGES), "no images.*values up to.*from 0 to 1"),
    "data with gaps": (lambda: fit(target=STATES.where(STATES > 0, math.nan)), "not finite.*values of 42.*leave such"),
    "too few frames": (lambda: fit(FILM, IMAGES[:-1]), r"experiment has 6 frames, 25 per second.*fps=25"),
    "another size": (lambda: fit(FILM, IMAGES[:, :8]), r"\(6, 12, 16, 3\).*\(6, 8, 16, 3\).*size="),
    "too few frames for a later stage": (lambda: fit(FILM, IMAGES[:-1], horizon=(0.1, 0.2)), "6 frames"),
    "a wrong name": (lambda: fit(unknown={"ball/frction": kn.fit.Log(0.1, 1)}), "'ball/frction'.*'ball/friction'"),
    "a pattern without matches": (lambda: fit(unknown={"b*/stiffness": kn.fit.Log(1, 2)}), "no parameter"),
    "a name of the camera": (lambda: fit(MOVED, IMAGES, {"eye": kn.fit.Free((0.0, -3.0, 1.0))}), r"extra=\('eye',\)"),
    "a number as an unknown": (lambda: fit(unknown={"ball/mass": 1.0}), "'ball/mass'.*no bounds.*float.*Log"),
    "a pair as an unknown": (lambda: fit(unknown={"ball/mass": (0.1, 2.0)}), "no bounds.*tuple.*Log"),
    "names as unknowns": (lambda: fit(unknown=["ball/mass"]), "needs unknowns.*list.*by name"),
    "no unknowns": (lambda: fit(unknown={}), "needs unknowns.*none"),
    "a logarithm from zero": (lambda: fit(unknown={"ball/mass": kn.fit.Log(0, 2)}), "not positive.*Bounded"),
    "swapped bounds": (lambda: fit(unknown={"ball/mass": kn.fit.Log(2, 1)}), "'ball/mass'.*low is not below high"),
    "bounds as text": (lambda: fit(unknown={"ball/mass": kn.fit.Log("1", "2")}), "low.*not usable.*'1'.*a number"),
    "a start outside": (lambda: fit(unknown={"ball/mass": kn.fit.Log(1, 2, start=5)}), "start is outside.*1 to 2"),
    "bounds of another shape": (lambda: fit(unknown={"gravity": kn.fit.Bounded([0, 0], [1, 1])}), r"shape \(3,\)"),
    "the same rows twice": (lambda: fit(unknown=BOTH), "overlap.*friction"),
    "a mass beside its inertia": (lambda: fit(unknown=WHOLE), "'ball/mass'.*part of an inertia.*leave it out"),
    "a tie to nothing": (lambda: fit(unknown={**RUBS, "ball/mass": kn.fit.Tie("m")}), "leads nowhere.*'m'"),
    "numbers of worlds": (lambda: fit(unknown=TWO), r"different numbers of worlds.*\[2, 3\]"),
    "an unknown method": (lambda: fit(method="newton"), "'newton'.*lm, gauss-newton, lbfgs"),
    "a method as a class": (lambda: fit(method=kn.fit.Adam), r"type.*kn\.fit\.Adam\(rate=0\.1\)"),
    "a negative rate": (lambda: fit(method=kn.fit.Adam(rate=-1.0)), "rate is not usable.*-1.0"),
    "an unknown loss": (lambda: fit(loss="l2"), "unknown loss.*'l2'.*squares, pyramid, marginal, silhouette"),
    "a loss without residuals": (lambda: fit(FILM, IMAGES, loss="silhouette"), "sum of squares.*'lbfgs' or 'adam'"),
    "a loss of the whole batch": (
        lambda: fit(loss=lambda made, data: (made - data).abs().mean(), method="adam"),
        r"wrong shape.*one per candidate.*average over the other axes",
    ),
    "marginals of states": (lambda: fit(loss="marginal"), r"no images.*\(6, 7\).*squares"),
    "falling horizons": (lambda: fit(horizon=(0.2, 0.1)), "horizon is not usable.*at least the one before"),
    "horizons in steps": (lambda: fit(horizon=(50, 100)), r"no time of the experiment.*0\.002.*0\.2"),
    "losses and horizons": (lambda: fit(loss=["squares"] * 3, horizon=(0.1, 0.2)), "3 losses and 2 horizons"),
    "a prediction without time": (
        lambda: fit(timeless, unknown={"a": kn.fit.Log(1, 2)}, horizon=(0.1, 0.2)),
        "values and a time.*def predict",
    ),
    "a model as prediction": (lambda: fit(BALL.model), r"needs an experiment.*Model.*kn\.fit\.Experiment"),
    "a prediction without candidates": (lambda: fit(lambda values: STATES), "no axis of candidates.*keep it"),
    "no starts": (lambda: fit(starts=0), "starts is not usable.*0"),
    "a seed as text": (lambda: fit(seed="1", starts=2), "seed is not usable.*'1'"),
    "options as a dictionary": (lambda: fit(options={"noise": "8bit"}), r"dict.*kn\.fit\.Options"),
    "an unknown noise": (lambda: fit(options=kn.fit.Options(noise="8 bit")), "noise is not usable.*'8bit'"),
    "bits of states": (lambda: fit(options=kn.fit.Options(noise="8bit", progress=False)), "States have no 8-bit form"),
    "a weight of nothing": (lambda: fit(options=kn.fit.Options(weights={"far": 2.0})), "no data.*'far'"),
    "a negative weight": (
        lambda: fit(lambda v: {"q": PATH(v)}, {"q": STATES}, options=kn.fit.Options(weights={"q": -1.0})),
        "'q'.*not usable.*positive",
    ),
    "cameras by name": (lambda: kn.fit.Images({"left": None}), "no camera.*dict.*list of these"),
    "every of zero": (lambda: kn.fit.States("q", every=0), "every is not usable.*0"),
    "an axis of two points": (lambda: kn.landscape(PATH, STATES, {"ball/mass": (1, 2, 2)}), "three or more"),
    "an unknown as an axis": (
        lambda: kn.landscape(PATH, STATES, {"ball/mass": kn.fit.Log(1, 2)}),
        r"not usable.*\(lowest, highest, number of points\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_the_error_says_what_to_do(what):
    call, message = MISTAKES[what]
    with pytest.raises(kn.InputError, match=f"(?s){message}"):
        call()


def test_figures_that_cannot_be_written(tmp_path):
    found = fit()
    (tmp_path / "file").write_text("")
    for file, message in ((tmp_path / "file" / "fit.png", "fit.png"), (tmp_path / "fit.xyz", "xyz")):
        with pytest.raises(kn.StorageError, match=f"(?s)cannot be written.*{message}|{message}.*cannot be written"):
            found.plot(file)
    with pytest.raises(kn.StorageError, match="not a regular file"):
        fit(options=kn.fit.Options(save=tmp_path, progress=False))


def test_an_unknown_without_effect_is_named():
    found = fit()
    assert found.undetermined == ["ball/friction"] and "not determined" in str(found)


def test_a_group_leaves_out_the_floating_base():
    """Damping of the six velocities of a trunk in the air is no damping of joints."""
    scene = kn.Scene()
    scene.add_robot(kn.shapes.quadruped(), "dog", pos=(0.0, 0.0, 2.0))
    model = kn.compile(scene)
    film = kn.fit.Experiment(model, kn.fit.States("q", every=10), steps=40, dt=2e-3)
    damping = torch.full((1, 18), 3.0, dtype=F64)
    damping[:, :6] = 0.0
    target = film({"dog/*/damping": damping})[0]
    for name, count in (("dog/*/damping", 12), ("dog/damping", 1)):
        found = kn.fit(film, target, {name: kn.fit.Log(0.5, 6.0)}, options=OPTIONS)
        assert len(found.names) == count and not any("root" in one for one in found.names)
        assert torch.allclose(found.values[name], damping[0], rtol=1e-6), name
    base = kn.fit(
        film, target, {"dog/root/damping": kn.fit.Log(1e-3, 6.0, shared=False)}, iterations=1, options=OPTIONS
    )
    assert base.names == [f"dog/root/damping[{i}]" for i in range(6)]


def test_a_film_of_eight_bits_tells_whether_its_floor_is_reached():
    film, names = FILM, {"state/v": kn.fit.Bounded(-1.0, 1.0)}
    v = torch.tensor([[0.0, 0.0, 0.0, 0.6, 0.0, 0.4]], dtype=F64)
    with torch.no_grad():
        target = kn.to_linear((255 * kn.to_srgb(film({"state/v": v})[0])).round() / 255)
    found = kn.fit(film, target, names, options=OPTIONS)
    assert found.floor_reached and "reached" in str(found)
    darker = kn.to_linear((220 * kn.to_srgb(target)).round() / 255)
    other = kn.fit(film, darker, names, iterations=3, options=OPTIONS)
    assert not other.floor_reached and "the error of the model" in str(other).replace("\n", " ")
    assert kn.fit(film, 0.999 * target, names, iterations=1, options=OPTIONS).floor is None
