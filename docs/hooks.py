"""Completes the pages: files of the repository, the API, formulas, citations, and links from names to the API.

- `{{file NAME}}` is replaced by a file of the repository; examples, and tests that docs/parameters.md links to, are
  copied, and names of examples become links.
- A page of the API is written for each stage of the flow, from the list of public names in `kinema/__init__.py`;
  mkdocstrings fills in signatures and docstrings. `{{api}}` is the table of all names.
- Formulas between dollars become MathML, which browsers draw without a script.
- `[Featherstone 2008, eq. 7.37]` becomes a link to the page of references, written from docs/references.bib.
- `kn.simulate` or `Scene.add_body` in a code span becomes a link to its entry in the API.
"""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import logging
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import SimpleTextInlineProcessor
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import kinema
from kinema import shapes

ROOT = Path(__file__).parents[1]
LOG = logging.getLogger("mkdocs.hooks.kinema")

# Pages of the API: name, title, and the modules whose public names it lists, all of a folder or one of its files.
PAGES = (
    (
        "scene",
        "Scenes",
        ("scene.scene", "scene.drives", "scene.softness", "scene.matter", "scene.handles", "scene.forces"),
    ),
    (
        "robots",
        "Robots and bodies",
        ("scene.description", "scene.tendons", "scene.keyframes", "scene.primitives", "scene.mass_properties"),
    ),
    ("shapes", "Procedural robots and meshes; files", ("scene.shapes", "scene.io")),
    ("model", "Models and states", ("model.model", "model")),
    ("smoke", "Smoke", ("simulation.smoke",)),
    ("dynamics", "Kinematics and dynamics", ("simulation.robot_dynamics",)),
    ("simulation", "Simulation", ("simulation.simulate", "simulation.trajectory", "simulation")),
    ("rendering", "Rendering", ("rendering.render", "rendering.camera", "rendering")),
    ("fitting", "Losses and gradient checks", ("fitting",)),
    ("files", "Saving and loading", ("storage",)),
    ("language", "Kernel language and programs", ("lang", "math")),
    ("errors", "Errors and warnings", ("errors",)),
)


class PlainText(Extension):
    """What Markdown must not change: stars in shapes (*batch, nq) and patterns "*_knee", and brackets of citations."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Called by markdown."""
        md.inlinePatterns.register(SimpleTextInlineProcessor(r"((?<=[_/])\*|\*(?=batch|_))", md), "stars", 185)
        cited = r"(\[[A-Z][^\[\]]*\b\d{4,5}\b[^\[\]]*\])(?!\()"
        md.inlinePatterns.register(SimpleTextInlineProcessor(cited, md), "citation", 186)


def on_config(config: Any) -> Any:
    """Called by mkdocs first."""
    config["markdown_extensions"].append(PlainText())
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Called by mkdocs once: adds generated pages, examples, and the tests that docs/parameters.md links to."""
    page = (ROOT / "docs" / "parameters.md").read_text()
    examples = [f"examples/{file.name}" for file in (ROOT / "examples").glob("*.py")]
    for name in [*sorted(set(re.findall(r"\]\((tests/[\w/]+\.py)\)", page))), *sorted(examples)]:
        files.append(File(name, str(ROOT), config["site_dir"], use_directory_urls=False))
    for name, title, _ in PAGES:
        files.append(File.generated(config, f"api/{name}.md", content=_api_page(name, title)))
    files.append(File.generated(config, "references.md", content=_references_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    markdown = re.sub(r"\{\{file ([\w./]+)\}\}", lambda mark: (ROOT / mark[1]).read_text(), markdown)
    return markdown.replace("{{api}}", _api_table())


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Called by mkdocs for every page, once it is HTML."""
    up = "../" * page.file.src_uri.count("/")
    content = re.sub(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', _formula, content, flags=re.DOTALL)
    parts = re.split(r"(<pre.*?</pre>|<h\d.*?</h\d>|<a .*?</a>|<math.*?</math>)", content, flags=re.DOTALL)
    for k in range(0, len(parts), 2):  # what is between code blocks, headings, links and formulas
        parts[k] = re.sub(r"\[([A-Z][^\[\]<>]*?\b\d{4,5}\b[^\[\]<>]*)\]", lambda m: _citation(m, up, page), parts[k])
        parts[k] = re.sub(r"<code>([\w.]+)(\([^<]*\))?</code>", lambda m: _reference(m, up, page), parts[k])
    return "".join(parts)


# -- the API ---------------------------------------------------------------------------------------------------------


def _place(module: str) -> tuple[str, int]:
    """The page that lists a module, the first that names it or a folder that it is in, and where on the page."""
    inside = module.removeprefix("kinema.")
    for name, _, modules in PAGES:
        for at, one in enumerate(modules):
            if inside == one or inside.startswith(f"{one}."):
                return name, at
    raise ValueError(f"{module} is on no page of the API: add it to PAGES in docs/hooks.py")


def _homes() -> dict[str, str]:
    """The module of every public name, in the order of the flow."""
    homes = {name: module for module, names in kinema._API.items() for name in names}
    return homes | kinema._MODULES


HOMES = _homes()
SHOWN = {name: _place(module)[0] for name, module in HOMES.items()}


def _names_on(page: str) -> list[str]:
    """The public names of a page, in the order of its modules."""
    return sorted((name for name, where in SHOWN.items() if where == page), key=lambda name: _place(HOMES[name])[1])


def _members(module: str) -> list[str]:
    """Public functions and classes of a module that is public as a whole, in the order of its file."""
    file = Path(inspect.getfile(importlib.import_module(module)))
    nodes = ast.parse(file.read_text()).body
    if file.name == "__init__.py":
        imports = [n for n in nodes if isinstance(n, ast.ImportFrom)]
        found = [alias.asname or alias.name for node in imports for alias in node.names]
    else:
        found = [n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [name for name in dict.fromkeys(found) if not name.startswith("_")]


def _api_page(page: str, title: str) -> str:
    """The page with the entries of mkdocstrings."""
    entries = []
    for name in _names_on(page):
        if name not in kinema._MODULES:
            entries.append(f"::: kinema.{name}")
        elif name != "errors":
            module = HOMES[name]
            first = (importlib.import_module(module).__doc__ or "").strip()
            entries.append(f"## kn.{name} {{ #kinema.{name} }}\n\n{first}")
            members = _documented(module, _members(module))
            entries += [f"::: {where}\n    options:\n      heading_level: 3" for where in members]
    return f"# {title}\n\n" + "\n\n".join(entries) + "\n"


def _documented(module: str, names: list[str]) -> list[str]:
    """Where the functions and classes of these names are defined; of a package, not what has the name of its file."""
    value = importlib.import_module(module)
    found = [(name, getattr(value, name)) for name in names]
    own = [(name, one) for name, one in found if inspect.isroutine(one) or inspect.isclass(one)]
    return [_where(module, name, one) for name, one in own]


def _where(module: str, name: str, value: Any) -> str:
    """The full name by which an entry of a module is found."""
    return f"{value.__module__}.{name}" if module == "kinema.scene.shapes" else f"{module}.{name}"


def _api_table() -> str:
    """All public names with the first lines of their docstrings."""
    lines = []
    for page, title, _ in PAGES:
        lines += [f"## [{title}]({page}.md)", "", "| | |", "|---|---|"]
        for name in _names_on(page):
            what = (inspect.getdoc(getattr(kinema, name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            anchor = "" if name == page else f"#kinema.{name}"
            lines.append(f"| [`{name}`]({page}.md{anchor}) | {what} |")
        lines.append("")
    return "\n".join(lines)


def _methods() -> dict[str, str]:
    """Full name of every public method, by class and method."""
    found = {}
    for name in HOMES:
        value = getattr(kinema, name)
        if inspect.isclass(value):
            for one, member in vars(value).items():
                if not one.startswith("_") and inspect.getdoc(member) and not isinstance(member, int | float | str):
                    found[f"{name}.{one}"] = f"kinema.{name}.{one}"
    return found


METHODS = _methods()
INSTANCES = {"scene": "Scene", "model": "Model", "state": "State", "path": "Trajectory"}
TOO_COMMON = {"math", "lang", "errors", "shapes", "inertia", "step", "compile", "load", "save"}


def _reference(found: re.Match[str], up: str, page: Page) -> str:
    """A code span, as a link if it names something public; names of other simulators do not."""
    text = found[1]
    if text.endswith(".py") and (ROOT / "examples" / text).exists():
        return f'<a href="{up}examples/{text}">{found[0]}</a>'
    name = re.sub(r"^(kn|kinema)\.", "", text)
    if name == text and page.file.src_uri == "how-to/coming-from.md":
        return found[0]
    owner, _, member = name.partition(".")
    if owner in INSTANCES and member:
        name = f"{INSTANCES[owner]}.{member}"
    if name in METHODS:
        return f'<a href="{up}api/{SHOWN[name.partition(".")[0]]}.html#{METHODS[name]}">{found[0]}</a>'
    if name in SHOWN and (name != text or name not in TOO_COMMON):
        return f'<a href="{up}api/{SHOWN[name]}.html#kinema.{name}">{found[0]}</a>'
    if owner == "shapes" and hasattr(shapes, member) and inspect.isroutine(getattr(shapes, member)):
        where = _where(shapes.__name__, member, getattr(shapes, member))
        return f'<a href="{up}api/shapes.html#{where}">{found[0]}</a>'
    return found[0]


# -- formulas --------------------------------------------------------------------------------------------------------


def _formula(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]), display=display)


# -- references ------------------------------------------------------------------------------------------------------

ACCENTS = {r"{\"a}": "ä", r"{\'e}": "é", r"{\ae}": "æ", r"{\o}": "ø", r"{\"u}": "ü", r"{\"o}": "ö"}


def _entries() -> dict[str, dict[str, str]]:
    """The entries of docs/references.bib by key."""
    text = (ROOT / "docs" / "references.bib").read_text()
    for code, letter in ACCENTS.items():
        text = text.replace(code, letter)
    entries = {}
    for key, body in re.findall(r"@\w+\{(\w+),(.*?)\n\}", text, re.DOTALL):
        fields = re.findall(r"(\w+)\s*=\s*\{((?:[^{}]|\{[^{}]*\})*)\}", body)
        entries[key] = {name: re.sub(r"[{}]", "", re.sub(r"\s+", " ", value)) for name, value in fields}
    return entries


ENTRIES = _entries()


def _references_page() -> str:
    """All references, by author."""
    lines = ["# References", ""]
    for key, one in sorted(ENTRIES.items()):
        authors = [" ".join(reversed(name.split(", "))) for name in one["author"].split(" and ")]
        where = one.get("journal") or one.get("booktitle") or one.get("publisher") or one.get("note", "")
        volume = f" {one['volume']}" + (f"({one['number']})" if "number" in one else "") if "volume" in one else ""
        label = _label([name.split(", ")[0] for name in one["author"].split(" and ")], one["year"])
        text = f"{', '.join(authors)}. *{one['title']}*. {where}{volume}, {one['year']}."
        lines += [f'<a id="{key}"></a>**{label}**: {text}', ""]
    return "\n".join(lines)


def _label(names: list[str], year: str) -> str:
    if len(names) == 2 and names[1] != "others":
        return f"{names[0]} and {names[1]} {year}"
    return f"{names[0]} et al. {year}" if len(names) > 1 else f"{names[0]} {year}"


def _citation(found: re.Match[str], up: str, page: Page) -> str:
    """A citation, each part of it as a link to its entry."""
    parts = []
    for part in found[1].split("; "):
        named = re.match(r"((?:[a-z]+ )*)([A-Z][\w-]+).*?(\d{4,5})", part)
        key = f"{named[2]}{named[3]}".lower().replace("-", "") if named else ""
        if key not in ENTRIES:
            if re.match(r"[A-Z][\w-]+( et al\.| and [A-Z]\w+)? \d{4}", part):
                LOG.warning(f"{page.file.src_uri}: [{part}] is not in docs/references.bib")
            parts.append(part)
        else:
            parts.append(f'<a href="{up}references.html#{key}">{part}</a>')
    return f"[{'; '.join(parts)}]"
