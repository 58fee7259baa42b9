"""The import table of ARCHITECTURE.md, read from the source: one way, no cycles, small documented files."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import kinema

SRC = Path(kinema.__file__).parent
FLOW = ["lang", "math", "scene", "contact.collision", "model", "kinematics"]
FLOW += ["dynamics", "contact", "integrate", "simulation"]
MAY_IMPORT = {stage: set(FLOW[: FLOW.index(stage)]) for stage in FLOW}
# dynamics, contact and integrate never read each other
MAY_IMPORT["contact"] = MAY_IMPORT["integrate"] = MAY_IMPORT["dynamics"]
MAY_IMPORT["storage"] = {*FLOW}
MAY_IMPORT["rendering"] = {*FLOW}
MAY_IMPORT |= {stage: {*FLOW, "rendering", "storage"} for stage in ("fitting", "envs", "view")}
MAY_IMPORT["planning"] = {*MAY_IMPORT["fitting"], "fitting"}
MAY_IMPORT |= {"errors": set(), "__init__": set(MAY_IMPORT) | {"errors"}}
# These may read everything, and the public API itself.
TOP = {"commands", "experiments", "shipped", "verification"}

WITHOUT_TORCH = {"lang", "math", "scene"}
TORCH_BRIDGE = {
    "kinema.lang.autograd.rollout",
    "kinema.lang.autograd.inputs",
    "kinema.lang.autograd.checkpointed_sweeps",
}
LONGEST_FILE = 800
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def name_of(file: Path) -> str:
    parts = ["kinema", *file.relative_to(SRC).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


FILES = {name_of(file): file for file in sorted(SRC.rglob("*.py")) if "_native" not in file.parts}
TREES = {name: ast.parse(file.read_text(), str(file)) for name, file in FILES.items()}


def stage_of(module: str) -> str:
    """The stage of the flow, a folder or a folder in it; "kinema" for the public API."""
    names = module.split(".")[1:]
    inner = ".".join(names[:2])
    return inner if inner in FLOW else names[0] if names else module


def targets(node: ast.AST, module: str) -> Iterator[str]:
    """Modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # A package counts as its own parent: `from . import x` in kinema/lang/__init__.py means kinema.lang.x.
        package = module.split(".")[: None if FILES[module].name == "__init__.py" else -1]
        base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
        base = ".".join(part for part in (base, node.module) if part)
        for alias in node.names:
            yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES or base == "kinema" else base


def imports(module: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of everything of Kinema that a module imports."""
    for node in nodes:
        for target in targets(node, module):
            if target.split(".")[0] == "kinema":
                yield node.lineno, target if target in FILES or target == "kinema" else target.rpartition(".")[0]


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run on import; functions and `if TYPE_CHECKING:` do not."""
    for child in ast.iter_child_nodes(node):
        types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        if not types_only and not isinstance(child, FUNCTION):
            yield child
            yield from executed(child)


@pytest.mark.parametrize("module", FILES)
def test_imports_follow_the_table(module: str):
    stage = stage_of(module)
    assert stage in MAY_IMPORT or stage in TOP, f"{FILES[module]}: {stage} is not a stage of the flow"
    for line, target in imports(module, ast.walk(TREES[module])):
        allowed = stage in TOP or stage_of(target) in {stage, "errors"} | MAY_IMPORT[stage]
        assert allowed, f"{FILES[module]}:{line}: {stage} must not import {target}"


def test_there_is_no_cycle():
    stages = {module: tree for module, tree in TREES.items() if module != "kinema.__init__"}
    graph = {module: {t for _, t in imports(module, executed(tree)) if t != module} for module, tree in stages.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("modules that import each other: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("module", [m for m in FILES if m not in ("kinema.commands.cli", "kinema.__init__")])
def test_no_import_of_kinema_inside_a_function(module: str):
    functions = (node for node in ast.walk(TREES[module]) if isinstance(node, FUNCTION))
    found = {f"{FILES[module]}:{line}: {target}" for f in functions for line, target in imports(module, ast.walk(f))}
    assert not found, "move to the top of the file"


@pytest.mark.parametrize("module", FILES)
def test_files_are_small_and_documented(module: str):
    assert len(FILES[module].read_text().splitlines()) <= LONGEST_FILE, f"{FILES[module]}: split it"
    assert ast.get_docstring(TREES[module]), f"{FILES[module]}: a module needs a docstring"
    for node in TREES[module].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{FILES[module]}:{node.lineno}: {node.name} needs a docstring"


@pytest.mark.parametrize("module", [m for m in FILES if stage_of(m) in WITHOUT_TORCH and m not in TORCH_BRIDGE])
def test_the_generator_does_not_import_torch(module: str):
    for node in executed(TREES[module]):
        assert not any(t.split(".")[0] == "torch" for t in targets(node, module)), f"{FILES[module]}:{node.lineno}"


def run_without(modules: str, code: str) -> None:
    block = f"import sys\nfor name in {modules.split()}: sys.modules[name] = None\n"
    result = subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_importing_kinema_needs_neither_torch_nor_numpy():
    run_without("torch numpy", "import kinema; assert 'KinemaError' in dir(kinema)")


def test_the_shipped_kernels_are_generated_without_torch():
    run_without(
        "torch rich tyro", "from kinema import shipped; assert shipped.list_kernels() and shipped.robot_programs()"
    )


def test_the_public_names_resolve_and_type_checkers_see_the_same():
    for name in kinema.__all__:
        assert getattr(kinema, name) is not None
    checked = next(n for n in TREES["kinema.__init__"].body if isinstance(n, ast.If))
    seen = {alias.asname for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(kinema.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kinema.nothing


def test_no_public_name_is_a_folders():
    """Importing kinema.x binds the folder to that name: kinema.x would be a function or a module, as it comes."""
    folders = {stage_of(module) for module, file in FILES.items() if file.name == "__init__.py"} - set(kinema._MODULES)
    assert not folders & set(kinema.__all__)
