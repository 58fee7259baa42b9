"""The command line. Each command imports its modules when it runs, so that `kinema --help` is quick."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

import kinema
from kinema.errors import InputError, KinemaError

# (name, passed or None if it could not run, detail)
Check = tuple[str, bool | None, str]


def doctor() -> int:
    """Show versions, compiler, CPU, threads and cache, then run three self-checks."""
    from kinema.commands import doctor
    from kinema.verification import selfcheck

    _print_table("kinema doctor", ("", ""), doctor.facts())
    return _print_checks("self-checks", selfcheck.run())


def cache_info() -> int:
    """Show the folder of compiled kernels and its size."""
    from kinema.commands import doctor

    print(doctor.cache_line())
    return 0


def cache_clear() -> int:
    """Remove all compiled kernels; they are compiled again on next use."""
    from kinema.lang.build import cache

    print(f"removed {cache.clear()} entries from {cache.folder()}")
    return 0


def kernels_list() -> int:
    """List the kernels shipped with Kinema."""
    from kinema import shipped

    _print_table("kernels", ("name", "what it does"), shipped.list_kernels())
    return 0


def kernels_show(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    adjoint: bool = False,
    tangent: bool = False,
    width: int = 0,
    scalar: bool = False,
) -> int:
    """Print the C++ emitted for a kernel.

    Args:
        name: Name of the kernel, see `kinema kernels list`.
        adjoint: Show the adjoint (reverse mode).
        tangent: Show the tangent (forward mode).
        width: SIMD lanes per register; 0 is this machine's number.
        scalar: Show the `template <class T>` scalar form instead of the SIMD form.
    """
    from kinema import shipped

    print(shipped.show(name, adjoint=adjoint, tangent=tangent, width=width or None, scalar=scalar))
    return 0


def bench(
    what: Annotated[Literal["kernels", "articulated", "robots", "deformable", "render"], tyro.conf.Positional],
    json: bool = False,
    quick: bool = False,
) -> int:
    """Measure Kinema side by side with other engines.

    Args:
        what: Kernels; quadrupeds and other robots on the ground; robots from files, hands, piles and chains; soft
            blocks on the ground and cloth on a ball; or images of spheres.
        json: Print one JSON object on standard output.
        quick: Fewer sizes and repetitions, as a smoke test.
    """
    from kinema.commands import bench

    result, tables = bench.run(what, quick=quick)
    if json:
        print(json_format.dumps(result))
        return 0
    for title, columns, rows in tables:
        _print_table(title, columns, rows)
    return 0


def demo(out: Path = Path("out/demo")) -> int:
    """Drop a soft block on a sphere and recover its stiffness from its final shape.

    Args:
        out: Folder for the figure.
    """
    from kinema.commands import demo

    demo.run(out)
    return 0


def verify(full: bool = False, only: str | None = None, json: bool = False) -> int:
    """Run the checks of the installed package and print them as a table.

    Args:
        full: Many more random cases, among them 5,000 trees against Pinocchio and MuJoCo if these are installed;
            takes about ten minutes.
        only: One check: gradients, modes, bits, overflow, finite, impacts, trees, files, images or memory.
        json: Print one JSON object on standard output; with --only impacts or files, all
            measurements of all scenes or files.
    """
    from kinema.verification import census, impacts, verify

    verify.check_name(only)
    if json and only == verify.FILES:
        rows = [census.examine(file) for file in census.files()]
        print(json_format.dumps([vars(row) for row in rows]))
        return 1 if any(row.wrong() for row in rows) else 0
    if json and only == verify.IMPACTS:
        measured = impacts.check(full=True)
        print(json_format.dumps(measured))
        return 0 if impacts.judge(measured)[0] else 1
    found = verify.run(full=full, only=only)
    if json:
        print(json_format.dumps({"rows": [dict(zip(("name", "passed", "detail"), row, strict=True)) for row in found]}))
        return 1 if any(ok is False for _, ok, _ in found) else 0
    return _print_checks("kinema verify", found)


def check(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    floating: bool = False,
    roots: tuple[Path, ...] = (),
    package_roots: tuple[str, ...] = (),
    meshes: Literal["required", "skip"] | None = None,
    repair: bool = False,
    strict: bool = False,
    srdf: Path | None = None,
    ignore: tuple[str, ...] = (),
    against: Literal["mujoco"] | None = None,
) -> int:
    """Print the contents of a robot file (URDF or MJCF): bodies, joints, actuators, shapes, contact pairs, warnings.

    The exit code is 1 if `kinema.compile` would refuse the robot on the ground, or if it differs from MuJoCo's; 2 if
    the file cannot be read.

    Args:
        file: The file.
        floating: Give the robot a free root.
        roots: Further folders, besides the file's own, whose files it may read.
        package_roots: URDF: folders of packages, as NAME=FOLDER.
        meshes: URDF: refuse missing mesh files, or omit them (the default).
        repair: URDF: change non-physical inertias to the nearest physical ones.
        strict: URDF: refuse what URDF does not allow, where the reader otherwise warns.
        srdf: URDF: an SRDF file whose disabled collisions apply.
        ignore: MJCF: elements to omit instead of refusing the model, such as "fluid".
        against: Compare masses, poses, mass matrix, bias forces and one second of motion with MuJoCo's of the file.
    """
    from kinema.commands import against_mujoco, check

    packages = dict(_pair(one) for one in package_roots)
    options: dict[str, Any] = {
        "roots": roots,
        "package_roots": packages,
        "meshes": meshes,
        "repair": repair,
        "ignore": ignore,
    }
    options |= {"strict": strict, "srdf": srdf}
    robot = check.read(file, floating, **{name: given for name, given in options.items() if given})
    found = check.report(robot)
    for title, columns, rows in found.tables:
        _print_table(f"{robot.name}: {title}", columns, rows)
    if against and not found.refused:
        rows, same = against_mujoco.compare(file, robot)
        _print_table(f"{robot.name}: against MuJoCo", ("", "largest difference", ""), rows)
        return 0 if same else 1
    return 1 if found.refused else 0


@dataclass(frozen=True)
class RunArguments:
    """Options of `kinema run`.

    Attributes:
        list: List the experiments.
        quick: A short run with few cases, as a test.
        full: The whole experiment, the default.
        set: Change arguments of the experiment, as NAME=VALUE: `--set videos=10000 size=128`.
        seeds: Number of seeds; the experiment's own number by default.
        first_seed: The first seed: 0, or 100 for quick runs.
        workers: Number of processes, as many as CPUs by default; 0 solves all cases in this one, for a debugger.
        ray: Address of a Ray cluster that solves the cases, or "local".
        resume: Keep the results of cases that an interrupted run has solved.
        json: Print one JSON object on standard output.
        out: Folder of results; out/NAME by default.
    """

    list: bool = False
    quick: bool = False
    full: bool = False
    set: tuple[str, ...] = ()
    seeds: int | None = None
    first_seed: int | None = None
    workers: int | None = None
    ray: str | None = None
    resume: bool = False
    json: bool = False
    out: Path | None = None


AS_PUBLISHED = RunArguments()


def run(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None,
    given: Annotated[RunArguments, tyro.conf.arg(name="")] = AS_PUBLISHED,
) -> int:
    """Run an experiment: a table or figure of a paper, in processes or on Ray. The exit code is 1 if a claim fails.

    Args:
        name: Name of the experiment, see `kinema run --list`.
        given: Options.
    """
    from kinema.experiments import printed, registry, runner

    if given.list:
        if name is not None:
            raise InputError("--list takes no name", got=name, fix="kinema run --list")
        _print_table(
            "experiments", ("name", "source", "what"), [(e.name, e.source, e.what) for e in registry.EXPERIMENTS]
        )
        return 0
    if name is None:
        raise InputError("an experiment needs a name", fix="kinema run NAME; kinema run --list shows the names")
    if given.quick and given.full:
        raise InputError("--quick and --full exclude each other", fix="leave one out; --full is the default")
    found = runner.run(
        name,
        quick=given.quick,
        arguments=given.set,
        seeds=registry.find(name).range_of_seeds(given.seeds, given.first_seed, given.quick),
        workers=given.workers,
        ray=given.ray,
        resume=given.resume,
        out=given.out,
    )
    if given.json:
        print(json_format.dumps(found.summary))
        return 0 if found.passed else 1
    for title, columns, rows in printed.tables(found):
        _print_table(title, columns, rows)
    for text in printed.closing(found):
        print(text)
    return 0 if found.passed else 1


COMMANDS: dict[str, Any] = {
    "demo": demo,
    "run": run,
    "check": check,
    "doctor": doctor,
    "kernels": {"list": kernels_list, "show": kernels_show},
    "cache": {"info": cache_info, "clear": cache_clear},
    "bench": bench,
    "verify": verify,
}

_GROUP_HELP = {
    "kernels": "List kernels, or print the C++ emitted for one.",
    "cache": "Show or clear the folder of compiled kernels.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 success, 1 a check failed, 2 an error."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["--version"]:
        print(f"kinema {kinema.__version__}")
        return 0
    try:
        description = "Kinema, a differentiable simulator."
        config = (tyro.conf.FlagCreatePairsOff,)
        code = _app(COMMANDS).cli(prog="kinema", description=description, args=arguments, config=config)
        sys.stdout.flush()
        return int(code or 0)
    except KinemaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _app(commands: dict[str, Callable[..., int] | dict[str, Any]]) -> tyro.extras.SubcommandApp:
    app = tyro.extras.SubcommandApp()
    for name, target in commands.items():
        if isinstance(target, dict):
            app.command(_app(target), name=name, help=_GROUP_HELP[name])
        else:
            app.command(name=name)(target)
    return app


def _pair(text: str) -> tuple[str, str]:
    """Name and folder of a package."""
    name, separator, folder = text.partition("=")
    if not (name and separator and folder):
        raise InputError("a package is not usable", got=text, expected="NAME=FOLDER")
    return name, folder


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    console = Console()
    if not console.is_terminal:
        # Plain lines, for logs and other programs.
        print(title)
        lines = [columns] * any(columns) + list(rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            print("  " + "  ".join(map(str.ljust, line, widths)).rstrip())
        return
    table = Table(*columns, title=title, title_justify="left", show_header=any(columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_checks(title: str, checks: Iterable[Check]) -> int:
    found, words = list(checks), {True: "ok", False: "FAILED", None: "not run"}
    _print_table(title, ("", "", ""), [(words[ok], name, detail) for name, ok, detail in found])
    return 1 if any(ok is False for _, ok, _ in found) else 0


if __name__ == "__main__":
    sys.exit(main())
