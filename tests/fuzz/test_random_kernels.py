"""Random kernels: values against plain Python, gradients against torch, tangents against adjoints, widths bit by bit.

`KINEMA_FUZZ=2000 pytest tests/fuzz` draws more of them, `KINEMA_FUZZ_SEED=...` others. One kernel by its seed:
`python tests/fuzz/generate.py SEED` prints it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import traceback
import types as python_types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import generate

import support
from kinema.lang.build import compiler, cpu
from kinema.lang.emit.simd import PACKET
from kinema.lang.ir import optimise
from kinema.lang.ir.analysis import ELEMENTS, WORLDS
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.language import functions, types
from kinema.lang.language.markers import Func

KERNELS = int(os.environ.get("KINEMA_FUZZ", "150"))
FIRST = int(os.environ.get("KINEMA_FUZZ_SEED", "0"))
SEEDS = range(FIRST, FIRST + KERNELS)
FILES = 12  # enough to keep all cores busy, few enough to share the cost of the headers

# A kernel is some hundred operations on numbers of order 1, each good to 4 ulp (1e-15); loops amplify errors a little.
VALUES = 1e-12
# Derivatives are sums of products of such values, up to some hundred terms.
GRADIENTS = 1e-11
# Both sides run the same code; what remains is rounding, relative to the sum of the absolute values of the terms.
DOT_PRODUCT = 1e-11

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@dataclass
class Subject:
    """A random kernel with its emitted forms."""

    case: generate.Case
    kernel: Kernel
    wanted: frozenset[str]
    forms: dict[tuple[str, str, int, int], support.Emission] = field(default_factory=dict)

    def run(self, form: str, worlds: list[dict[str, np.ndarray]], *how: Any) -> list[dict[str, np.ndarray]]:
        """Run one form; `how` is one of the configurations, the first one if not given."""
        return self.forms[(form, *(how or configurations(self.case)[0]))](worlds, self.case.count)


def configurations(case: generate.Case) -> list[tuple[str, int, int]]:
    """Lanes, width and precision in which a kernel is compiled; the first one is compared with the oracles."""
    seed = case.seed
    if case.tree:  # as in programs: one lane, or lanes are worlds
        return [(ELEMENTS, 1, 8), (WORLDS, (4, 2)[seed // 8 % 2], 8)]
    found = [(ELEMENTS, 4, 8)]
    if seed % 5 == 0:
        found.append((ELEMENTS, (1, 2, 8, 2, 1, 8, 1, 16)[seed // 5 % 8], 8))
    if seed % 10 == 1:
        found.append((WORLDS, (4, 2)[seed // 10 % 2], 8))
    if seed % 20 == 2:
        found += [(ELEMENTS, 8, 4), (ELEMENTS, (4, 16)[seed // 20 % 2], 4)]
    return found


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Subject | str]:
    """All kernels, translated, differentiated and compiled; or what went wrong with one."""
    folder = tmp_path_factory.mktemp("kernels")
    made: dict[int, Subject | str] = {}
    with ThreadPoolExecutor(max_workers=cpu.threads()) as pool:
        jobs = []
        for part in np.array_split(SEEDS, FILES):
            batch = support.Batch()
            for seed in map(int, part):
                made[seed] = subject_or_error(generate.generate(seed), folder, batch)
            jobs.append(pool.submit(batch.compile, 1))  # while the next ones are translated
        for job in jobs:
            job.result()
    return made


def subject_or_error(case: generate.Case, folder: Path, batch: support.Batch) -> Subject | str:
    before = len(batch.emissions)
    try:
        return subject(case, folder, batch)
    except Exception:
        del batch.emissions[before:]
        return f"seed {case.seed}: {traceback.format_exc()}\n{case.source}"


def subject(case: generate.Case, folder: Path, batch: support.Batch) -> Subject:
    """Translate, differentiate and emit; one kernel in five keeps even small functions out of line."""
    largest = 4 if case.seed % 5 == 3 else optimise.LARGE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimise, "LARGE", largest)
        patch.setattr(optimise.clean, "__defaults__", (False, largest))
        return _subject(case, folder, batch)


def _subject(case: generate.Case, folder: Path, batch: support.Batch) -> Subject:
    path = folder / f"{case.name}.py"
    path.write_text(case.source)
    spec = importlib.util.spec_from_file_location(case.name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, case.name)
    rng = np.random.default_rng(case.seed)
    inputs = [a.name for a in case.arguments.values() if a.is_float and not a.output]
    # Sometimes only some inputs need a gradient: what does not depend on them is left out.
    wanted = frozenset(inputs if case.seed % 4 else [n for n in inputs if rng.integers(2)])
    outputs = frozenset(a.name for a in case.arguments.values() if a.is_float and a.output)
    packets = rng.integers(2) and not case.tree
    layouts = {a.name: PACKET for a in case.arguments.values() if a.kind == "own" and a.numbers > 1 and packets}
    found = Subject(case, kernel, wanted)
    kernels = {
        "forward": kernel.forward(),
        "adjoint": kernel.adjoint(wanted | outputs),
        "tangent": kernel.tangent(wanted | outputs),
    }
    for lanes, width, size in configurations(case):
        for form in ("forward", "adjoint"):
            found.forms[form, lanes, width, size] = batch.add(kernels[form], layouts, lanes, width, size)
    # One lane compiles faster; its outputs must have the bits of the forward kernel's four lanes.
    width = 4 if case.seed % 4 == 3 and not case.tree else 1
    found.forms[("tangent", *configurations(case)[0])] = batch.add(kernels["tangent"], layouts, width=width)
    return found


# -- oracles -------------------------------------------------------------------------------------------------------


def plain(subject: Subject, world: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The kernel as plain Python."""
    case = subject.case
    given = {}
    for a in case.arguments.values():
        array = world[a.name].copy().reshape(a.length, *generate.NUMBERS[a.element])
        given[a.name] = array[0] if a.kind == "value" else array
    subject.kernel.python(*given.values(), count=case.count)
    return {a.name: np.reshape(given[a.name], (a.length, a.numbers)) for a in case.arguments.values()}


class TorchArray:
    """An array of the language whose numbers are torch scalars."""

    def __init__(self, element: type, values: list[Any]) -> None:
        self.element, self.values = element, values

    def __getitem__(self, i: int) -> Any:
        assert 0 <= i < len(self.values)
        return self.values[i]

    def __len__(self) -> int:
        return len(self.values)

    def __setitem__(self, i: int, value: Any) -> None:
        assert 0 <= i < len(self.values)
        self.values[i] = value


class TorchFloat(types.Float):
    """Float over torch."""

    def __new__(cls, value: Any) -> Any:
        return tensor(value)


class TorchInt(types.Int):
    """Int(x) of a torch scalar."""

    def __new__(cls, value: Any) -> Any:
        return int(value.detach() if isinstance(value, torch.Tensor) else value)


class OutOfPlace(ast.NodeTransformer):
    """x += y as x = x + y: torch would change the number itself, and with it what was computed from it before."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        return ast.Assign([node.target], ast.BinOp(read, node.op, node.value))


def tensor(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=torch.float64)


def torch_local(element: type, size: int) -> TorchArray:
    zeros = [0 if k == "i" else tensor(0.0) for k in types.flatten(element)]
    return TorchArray(element, [types.from_scalars(element, iter(zeros)) for _ in range(size)])


def torch_grad(f: Any, argument: int = 0) -> Any:
    """`grad(f, argument)` by torch, differentiable again."""

    def derivative(*given: Any) -> Any:
        target = given[argument]
        kind = type(target) if isinstance(target, types.Value) else types.Float
        leaves = [tensor(x) * 1.0 for x in types.scalars_of(target)]
        leaves = [x if x.requires_grad else x.requires_grad_() for x in leaves]
        energy = tensor(f(*given[:argument], types.from_scalars(kind, iter(leaves)), *given[argument + 1 :]))
        if not energy.requires_grad:
            return types.from_scalars(kind, iter([tensor(0.0) for _ in leaves]))
        found = torch.autograd.grad(energy, leaves, create_graph=True, allow_unused=True)
        return types.from_scalars(kind, iter([tensor(0.0) if x is None else x for x in found]))

    return derivative


def torch_language() -> dict[str, Any]:
    """The names of the language over torch scalars; functions written in the language keep their source."""
    one = {
        "sqrt": torch.sqrt,
        "rsqrt": lambda x: 1.0 / torch.sqrt(x),
        **{
            n: getattr(torch, n)
            for n in ("sin", "cos", "tan", "asin", "acos", "exp", "log", "tanh", "sigmoid", "sign", "floor")
        },
    }
    space: dict[str, Any] = {name: (lambda x, f=f: f(tensor(x))) for name, f in one.items()}
    space["atan2"] = lambda y, x: torch.atan2(tensor(y), tensor(x))
    space["pow"] = lambda x, y: torch.pow(tensor(x), tensor(y))
    space["abs"] = lambda x: torch.abs(x) if isinstance(x, torch.Tensor) else abs(x)
    space["min"] = lambda *xs: xs[0] if len(xs) == 1 else space["min"](xs[0] if xs[0] < xs[1] else xs[1], *xs[2:])
    space["max"] = lambda *xs: xs[0] if len(xs) == 1 else space["max"](xs[0] if xs[0] > xs[1] else xs[1], *xs[2:])
    space["select"] = lambda c, a, b: a if c else b
    space.update(local=torch_local, grad=torch_grad, static=functions.static, kernel=lambda f: f, func=lambda f: f)
    space.update({n: getattr(types, n) for n in ("vec2", "vec3", "mat22", "mat33", "Array", "Index", "Bool")})
    space.update(Float=TorchFloat, Int=TorchInt)
    for name, f in vars(functions).items():
        if isinstance(f, Func):
            space[name] = python_types.FunctionType(f.python.__code__, space, name)
    return space


def by_torch(
    subject: Subject, world: dict[str, np.ndarray], seeds: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Outputs and gradients of the same source, run on torch scalars."""
    case, space = subject.case, torch_language()
    tree = ast.fix_missing_locations(OutOfPlace().visit(ast.parse(case.body)))
    exec(compile(tree, case.name, "exec"), space)
    given, leaves = {}, {}
    for a in case.arguments.values():
        element = getattr(types, a.element)
        if a.is_float:
            leaves[a.name] = [
                [tensor(x).requires_grad_(a.name in subject.wanted) for x in row] for row in world[a.name]
            ]
            values = [types.from_scalars(element, iter(row)) for row in leaves[a.name]]
        else:
            values = [int(row[0]) for row in world[a.name]]
        given[a.name] = values[0] if a.kind == "value" else TorchArray(element, list(values))
    for e in range(1 if case.tree else case.count):
        space[case.name](*([] if case.tree else [e]), *given.values())
    outputs, loss = {}, tensor(0.0)
    for a in case.arguments.values():
        if a.output:
            rows = [types.scalars_of(v) for v in given[a.name].values]
            outputs[a.name] = np.array([[float(tensor(x).detach()) if a.is_float else x for x in row] for row in rows])
            if a.is_float:
                terms = [
                    tensor(x) * float(g)
                    for row, given_row in zip(rows, seeds[a.name], strict=True)
                    for x, g in zip(row, given_row, strict=True)
                ]
                loss = loss + sum(terms)
    if loss.requires_grad:
        loss.backward()
    grads = {
        n: np.array([[0.0 if x.grad is None else float(x.grad) for x in row] for row in leaves[n]])
        for n in subject.wanted
    }
    return outputs, grads


# -- checks --------------------------------------------------------------------------------------------------------


def of_seed(subjects: dict[int, Subject | str], seed: int) -> Subject:
    found = subjects[seed]
    if isinstance(found, str):
        pytest.fail(found)
    return found


def cotangents(case: generate.Case, number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([case.seed, number, 1])
    return {
        a.name: rng.uniform(-1, 1, (a.length, a.numbers)) for a in case.arguments.values() if a.output and a.is_float
    }


def adjoint_inputs(
    subject: Subject, after: dict[str, np.ndarray], seeds: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the adjoint is given: arrays as the forward run left them, cotangents of the outputs, zeros to add to."""
    made = dict(after)
    made.update({f"adj_{n}": g.copy() for n, g in seeds.items()})
    made.update({f"adj_{n}": np.zeros_like(after[n]) for n in subject.wanted})
    return made


def gradients(
    subject: Subject, worlds: list[dict[str, np.ndarray]], *how: Any
) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """Arrays after the forward run, and gradients, per world."""
    after = subject.run("forward", worlds, *how)
    given = [adjoint_inputs(subject, a, cotangents(subject.case, w)) for w, a in enumerate(after)]
    back = subject.run("adjoint", given, *how)
    return after, [{n: b[f"adj_{n}"] for n in subject.wanted} for b in back]


def assert_close(got: np.ndarray, wanted: np.ndarray, tolerance: float, what: str, subject: Subject) -> None:
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    error = np.abs(got - wanted).max(initial=0.0) / scale
    assert error <= tolerance, (
        f"seed {subject.case.seed}: {what} differs by {error:.3g}\n{subject.case.source}\n{got}\n{wanted}"
    )


def assert_same_bits(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray], what: str, subject: Subject) -> None:
    for name, array in wanted.items():
        same = np.array_equal(got[name], array)  # 0.0 and -0.0 count as equal
        assert same, (
            f"seed {subject.case.seed}: bits of {name} differ {what}\n{subject.case.source}\n{got[name]}\n{array}"
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_values_gradients_and_tangents(subjects: dict[int, Subject | str], seed: int) -> None:
    subject = of_seed(subjects, seed)
    case, world = subject.case, subject.case.world(0)
    (after,), (grads,) = gradients(subject, [world])
    reference = plain(subject, world)
    for a in case.arguments.values():
        if a.is_float:
            assert_close(after[a.name], reference[a.name], VALUES, f"value of {a.name}", subject)
        else:
            assert np.array_equal(after[a.name], reference[a.name]), f"seed {seed}: {a.name}\n{case.source}"
    seeds = cotangents(case, 0)
    outputs, wanted = by_torch(subject, world, seeds)
    for name in outputs:
        assert_close(after[name], outputs[name], VALUES, f"value of {name} (torch)", subject)
    for name in subject.wanted:
        assert_close(grads[name], wanted[name], GRADIENTS, f"gradient of {name}", subject)
    check_tangents(subject, world, after, grads, seeds)


def check_tangents(subject: Subject, world: dict, after: dict, grads: dict, seeds: dict) -> None:
    """<cotangent, tangent out> = <gradient, tangent in>, and the tangent kernel computes the same outputs."""
    rng = np.random.default_rng([subject.case.seed, 2])
    given = dict(world)
    directions = {n: rng.uniform(-1, 1, world[n].shape) for n in sorted(subject.wanted)}
    given.update({f"tan_{n}": d for n, d in directions.items()})
    given.update({f"tan_{n}": np.zeros_like(world[n]) for n in seeds})
    (result,) = subject.run("tangent", [given])
    assert_same_bits(
        result, {a.name: after[a.name] for a in subject.case.arguments.values()}, "in the tangent kernel", subject
    )
    out = np.concatenate([np.zeros(0), *[(g * result[f"tan_{n}"]).ravel() for n, g in seeds.items()]])
    back = np.concatenate([np.zeros(0), *[(grads[n] * d).ravel() for n, d in directions.items()]])
    scale = max(1.0, np.abs(out).sum(), np.abs(back).sum())
    error = abs(out.sum() - back.sum()) / scale
    assert error <= DOT_PRODUCT, f"seed {subject.case.seed}: dot products differ by {error:.3g}\n{subject.case.source}"


@pytest.mark.parametrize("seed", [s for s in SEEDS if len(configurations(generate.generate(s))) > 1])
def test_lanes_do_not_change_a_bit(subjects: dict[int, Subject | str], seed: int) -> None:
    subject = of_seed(subjects, seed)
    worlds = [subject.case.world(w) for w in range(4)]
    first, *others = configurations(subject.case)
    if others[0][2] == 4:
        first, *others = others
    for lanes, width, size in others:
        if lanes == ELEMENTS:
            for world in worlds[:1]:
                wanted, got = gradients(subject, [world], *first), gradients(subject, [world], lanes, width, size)
                for half in (0, 1):
                    assert_same_bits(got[half][0], wanted[half][0], f"at width {width}", subject)
            continue
        # Lanes are worlds; the last block is not full.
        together = worlds[: max(width - 1, 1)]
        got = gradients(subject, together, lanes, width, size)
        for w, world in enumerate(together):
            after = subject.run("forward", [world], *first)[0]
            back = subject.run("adjoint", [adjoint_inputs(subject, after, cotangents(subject.case, w))], *first)[0]
            assert_same_bits(got[0][w], after, f"in world {w} of {width}", subject)
            assert_same_bits(
                got[1][w], {n: back[f"adj_{n}"] for n in subject.wanted}, f"in world {w} of {width}", subject
            )
