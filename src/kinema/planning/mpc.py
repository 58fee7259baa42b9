"""`MPC`: plans on a receding horizon, each starting from the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from kinema.model.model import Model, expect_model
from kinema.model.state import State
from kinema.planning.cost import Cost
from kinema.planning.methods import Method
from kinema.planning.plan import Options, Plan, make_plan
from kinema.simulation.control import Control


class MPC:
    """Model predictive control: `u = controller(state)` plans anew from a state and returns the first controls.

    Each call simulates the plan of the last call, one knot later, and improves it by a few iterations. Call it once for
    each knot, that is every `options.hold * dt` seconds.

    Args:
        model: The model.
        cost: A `Cost`, as in `plan`; or a function of the number of the call that returns one, for references that
            change over time.
        steps: Horizon, in steps.
        dt: Time step of the plan [s].
        u0: Initial controls of the first plan, as in `plan`.
        iterations: Of each plan after the first.
        first: Iterations of the first plan.
        bounds: As in `plan`.
        method: As in `plan`.
        options: As in `plan`; without progress by default.

    Attributes:
        plan: The last plan; None before the first call. `plan.control(k, state)` is its feedback law.
    """

    def __init__(
        self,
        model: Model,
        cost: Cost | Callable[[int], Cost],
        *,
        steps: int,
        dt: float,
        u0: Any = None,
        iterations: int = 2,
        first: int = 50,
        bounds: Any = None,
        method: str | Method = "ilqr",
        options: Options = Options(progress=False),  # noqa: B008
    ) -> None:
        expect_model(model)
        self.plan: Plan | None = None
        self._model, self._cost, self._u0, self._calls = model, cost, u0, 0
        self._words: dict[str, Any] = {"steps": steps, "dt": dt, "bounds": bounds, "method": method, "options": options}
        self._counts = (first, iterations)

    def __call__(self, state: State) -> Tensor:
        """Controls to hold for the next `options.hold` steps, shape (m,).

        Args:
            state: The actual state.

        Raises:
            InputError, SimulationError: As in `plan`.
        """
        cost = self._cost if isinstance(self._cost, Cost) else self._cost(self._calls)
        guess, count = self._u0, self._counts[0]
        if self.plan is not None:
            planned = {self.plan.planned: self.plan.shifted()}
            guess, count = replace(guess if isinstance(guess, Control) else Control(), **planned), self._counts[1]  # type: ignore[arg-type]
        self.plan = make_plan(self._model, cost, state=state, u0=guess, iterations=count, **self._words)
        self._calls += 1
        return self.plan.knots[0]
