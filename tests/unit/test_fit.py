"""`kn.fit`: methods, horizons, starts, failures, resuming, and what data determine."""

import math

import pytest
import torch

import kinema as kn

F64 = torch.float64
OPTIONS = kn.fit.Options(progress=False)
TIMES = torch.linspace(0.0, 2.0, 41, dtype=F64)


def oscillation(values, until=None):
    """A damped oscillator in closed form, shape (candidates, frames, 1)."""
    k, c, m = (values[n].unsqueeze(-1) for n in ("k", "c", "m"))
    times = TIMES if until is None else TIMES[until + 1e-12 >= TIMES]
    omega = (k / m - 0.25 * (c / m) ** 2).clamp_min(1e-6).sqrt()
    return ((-0.5 * c / m * times).exp() * (omega * times).cos()).unsqueeze(-1)


TRUTH = {"k": torch.tensor([40.0], dtype=F64), "c": torch.tensor([0.7], dtype=F64), "m": torch.tensor([1.0], dtype=F64)}
TARGET = oscillation(TRUTH)[0]
UNKNOWN = {"k": kn.fit.Log(1.0, 500.0), "c": kn.fit.Log(0.05, 10.0), "m": kn.fit.Log(0.999, 1.001)}
TWO = {"k": UNKNOWN["k"], "c": UNKNOWN["c"]}


def spring(values, until=None):
    return oscillation({**values, "m": torch.ones_like(values["k"])}, until)


@pytest.mark.parametrize(
    "method", ["lm", "gauss-newton", "lbfgs", kn.fit.Adam(rate=0.02, final=0.01, iterations=300), "cma"]
)
def test_every_method_finds_an_oscillator(method):
    found = kn.fit(
        spring, TARGET, TWO, method=method, starts=8, horizon=(0.4, 1.0, 2.0), iterations=None, options=OPTIONS
    )
    assert float(found.values["k"]) == pytest.approx(40.0, rel=1e-3)
    assert float(found.values["c"]) == pytest.approx(0.7, rel=1e-2)


def test_predictions_of_single_precision_are_fitted_in_double():
    found = kn.fit(lambda values, until=None: spring(values, until).float(), TARGET.float(), TWO, options=OPTIONS,
                   horizon=(0.4, 1.0, 2.0), starts=8)  # fmt: skip
    assert float(found.values["k"]) == pytest.approx(40.0, rel=1e-4)
    assert found.values["k"].dtype == F64


def test_a_short_horizon_first_finds_what_the_whole_does_not():
    """Over 2 s the loss by stiffness has a minimum for each period that fits; over 0.4 s it has one."""

    def undamped(values, until=None):
        return spring({**values, "c": torch.full_like(values["k"], 0.01)}, until)

    target, unknown = undamped(TRUTH)[0], {"k": kn.fit.Log(1, 500, start=400.0)}
    whole = kn.fit(undamped, target, unknown, options=OPTIONS)
    grown = kn.fit(undamped, target, unknown, horizon=(0.2, 0.5, 1, 2), options=OPTIONS)
    assert whole.loss > 1e-3 and grown.loss < 1e-20
    assert len(grown.stages) == 4 and grown.stages[-1] == grown.iterations


def test_standard_deviations_are_those_of_repeated_experiments():
    """Estimates from 64 draws of noise scatter as the covariance says; 64 draws give a deviation to 9 % (one sigma)."""
    sigma, generator = 0.01, torch.Generator().manual_seed(3)
    found = []
    for _ in range(64):
        noisy = TARGET + sigma * torch.randn(TARGET.shape, generator=generator, dtype=F64)
        start = {"k": kn.fit.Log(1, 500, start=40.0), "c": kn.fit.Log(0.05, 10.0, start=0.7)}
        options = kn.fit.Options(noise=sigma, progress=False)
        found.append(kn.fit(spring, noisy, start, options=options))
    for i, name in enumerate(("k", "c")):
        scatter = torch.stack([one.numbers[i] for one in found]).std()
        claimed = torch.tensor([one.std[name] for one in found]).mean()
        assert float(claimed / scatter) == pytest.approx(1.0, abs=0.3), name
    assert sum(one.floor_reached for one in found) >= 60  # three standard deviations


def test_noise_that_is_smaller_than_told_is_not_reached():
    generator = torch.Generator().manual_seed(0)
    noisy = TARGET + 0.05 * torch.randn(TARGET.shape, generator=generator, dtype=F64)
    start = {"k": kn.fit.Log(1, 500, start=40.0), "c": kn.fit.Log(0.05, 10.0, start=0.7)}
    assert not kn.fit(spring, noisy, start, options=kn.fit.Options(noise=0.01, progress=False)).floor_reached


def test_a_combination_that_data_do_not_determine_is_named():
    """Stiffness, damping and mass enter as ratios only."""
    wide = {
        "k": kn.fit.Log(1, 500, start=30.0),
        "c": kn.fit.Log(0.05, 10, start=0.5),
        "m": kn.fit.Log(0.1, 10, start=1.0),
    }
    found = kn.fit(oscillation, TARGET, wide, options=OPTIONS)
    assert len(found.undetermined) == 1 and all(name in found.undetermined[0] for name in wide)
    assert not bool(found.accuracy.determined.any())
    assert "not determined" in str(found)
    ratio = float(found.values["k"] / found.values["m"])
    assert ratio == pytest.approx(40.0, rel=1e-6)
    assert (
        kn.fit(spring, TARGET, {"k": kn.fit.Log(1, 500, start=30.0), "c": TWO["c"]}, options=OPTIONS).undetermined == []
    )


def test_failed_starts_count_as_infinite_and_leave_the_others_their_bits():
    def fragile(values, until=None):
        made = spring(values, until)
        return torch.where((values["k"] > 100.0).reshape(-1, 1, 1), math.nan, made)

    unknown = {"k": kn.fit.Log(1, 500, start=30.0), "c": TWO["c"]}
    alone = kn.fit(fragile, TARGET, unknown, method="lbfgs", options=OPTIONS)
    batch = kn.fit(fragile, TARGET, unknown, method="lbfgs", starts=12, options=OPTIONS)
    assert any(math.isinf(start.loss) for start in batch.starts)
    assert torch.equal(batch.starts[0].values["k"], alone.starts[0].values["k"])
    with pytest.raises(kn.SimulationError, match="the fit failed: predictions are not finite"):
        kn.fit(fragile, TARGET, {"k": kn.fit.Log(200, 500), "c": TWO["c"]}, options=OPTIONS)


@pytest.mark.parametrize("method", ["lm", "lbfgs", "adam", "sgd", "cma"])
def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(tmp_path, method):
    def stopping(values, until=None):
        calls[0] -= 1
        if calls[0] == 0:
            raise KeyboardInterrupt
        return spring(values, until)

    words = {"method": method, "starts": 3, "iterations": 12, "horizon": (0.5, 2.0), "seed": 5}
    calls = [10**9]
    whole = kn.fit(stopping, TARGET, TWO, options=OPTIONS, **words)
    options = kn.fit.Options(progress=False, save=tmp_path / "fit.safetensors")
    for after in (3, 7, 5, 9, 4):
        calls = [after]
        try:
            kn.fit(stopping, TARGET, TWO, options=options, **words)
            break
        except KeyboardInterrupt:
            pass
    calls = [10**9]
    resumed = kn.fit(stopping, TARGET, TWO, options=options, **words)
    assert torch.equal(resumed.numbers, whole.numbers) and torch.equal(resumed.history, whole.history)
    assert resumed.evaluations >= whole.evaluations * 0.5
    with pytest.raises(kn.InputError, match="of another fit"):
        kn.fit(stopping, TARGET + 1, TWO, options=options, **words)


def test_bounds_hold_and_are_reported():
    found = kn.fit(spring, TARGET, {"k": kn.fit.Log(1, 20, start=18.0), "c": TWO["c"]}, options=OPTIONS)
    assert float(found.values["k"]) == pytest.approx(20.0, rel=1e-12)
    assert bool(found.at_bounds[0]) and "at its bound" in str(found)


def test_results_do_not_depend_on_the_number_of_starts():
    few = kn.fit(spring, TARGET, TWO, method="lbfgs", iterations=8, options=OPTIONS)
    many = kn.fit(spring, TARGET, TWO, method="lbfgs", iterations=8, starts=5, options=OPTIONS)
    assert many.starts[0].loss == few.starts[0].loss
    assert torch.equal(many.starts[0].values["k"], few.starts[0].values["k"])


def test_worlds_have_values_of_their_own_and_share_others():
    """Three masses on springs of the same stiffness: three dampings and one stiffness."""
    c = torch.tensor([[0.3, 0.7, 1.5]], dtype=F64)
    shared = torch.full((1, 1), 40.0, dtype=F64)
    target = spring({"k": shared.expand(1, 3), "c": c})[0]

    def worlds(values):
        k, c = torch.broadcast_tensors(values["k"], values["c"])
        return spring({"k": k, "c": c})

    unknown = {"k": kn.fit.Log(1, 500, start=30.0), "c": kn.fit.Log(0.05, 10, worlds=3)}
    found = kn.fit(worlds, target, unknown, options=OPTIONS)
    assert torch.allclose(found.values["c"], c[0], rtol=1e-6)
    assert found.values["k"].item() == pytest.approx(40.0, rel=1e-6)
    assert found.names == ["k", "c, world 0", "c, world 1", "c, world 2"]


def test_ties_follow():
    unknown = {"k": kn.fit.Log(1, 500, start=30.0), "c": TWO["c"], "m": kn.fit.Tie("k", 1 / 40)}
    found = kn.fit(oscillation, TARGET * 1.0, unknown, options=OPTIONS)
    assert float(found.values["m"] / found.values["k"]) == pytest.approx(1 / 40)


def test_several_data_with_weights():
    def both(values):
        made = spring(values)
        return {"near": made[:, :10], "far": made[:, 10:]}

    target = {"near": TARGET[:10], "far": TARGET[10:] + 0.1}
    near = kn.fit.Options(weights={"far": 1e-9}, progress=False)
    unknown = {"k": kn.fit.Log(1, 500, start=30.0), "c": TWO["c"]}
    found = kn.fit(both, target, unknown, options=near)
    assert float(found.values["k"]) == pytest.approx(40.0, rel=1e-3)
    assert abs(float(kn.fit(both, target, unknown, options=OPTIONS).values["k"]) - 40.0) > 0.05


def test_plot_and_save(tmp_path):
    found = kn.fit(spring, TARGET, TWO, starts=3, options=OPTIONS)
    assert found.plot(tmp_path / "fit.png").stat().st_size > 2000
    found.save(tmp_path / "fit.safetensors")
    assert torch.equal(kn.load(tmp_path / "fit.safetensors")["numbers"], found.numbers)


def test_longer_differences_pass_small_jumps():
    """Like an image, this prediction jumps by 1e-4 where an outline reaches a pixel, here every 1e-4."""

    starts = torch.linspace(0.01, 0.3, 30).tolist()

    def predict(values):
        v = values["v"].unsqueeze(-1) + torch.linspace(0.0, 1.5, 7, dtype=torch.float64)
        return torch.sin(v) + 1e-4 * (torch.floor(1e4 * v) % 2)

    def error(shortest, start):
        unknown = {"v": kn.fit.Bounded(0.0, 1.0, start=start)}
        target = predict({"v": torch.tensor([0.4], dtype=torch.float64)})[0]
        method = kn.fit.LM(shortest=shortest, longest=shortest, iterations=4)
        return float((kn.fit(predict, target, unknown, method=method, options=OPTIONS).values["v"] - 0.4).abs())

    errors = {length: [error(length, start) for start in starts] for length in (1e-6, 1e-2)}
    assert max(errors[1e-2]) < 1e-3
    assert max(errors[1e-6]) > 0.01, "a jump within a step of 1e-6 looks like a slope of 100"
