"""Counts what makes code easy or hard to change, and prints it as a table.

``python -m tests.tree.count`` counts this tree; ``python -m tests.tree.count FOLDER ...`` counts
gateware and texts below other folders, such as another project's, by the same rules. Sources are
read, never run:

- *gateware lines* of a component: ``elaborate`` and its methods that take the module ``m``;
- *ports*: members of its annotations and of the dict that its constructor hands on;
- *set while elaborating*: attributes that no constructor sets, but a method that takes part in
  elaboration;
- *pronouns*: their share of all words in the docstrings of modules, classes and functions. A text
  that names its subjects has few (amaranth-soc and Sentinel: some 2.5 %);
- *files touched*: by the diffs of the tutorial's first changes.
"""

import ast
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from dxpu_tools.collection import undisturbed
from tests.support.pages import touched
from tests.tree.test_imports import FOLDERS, ROOT, Tree, table

__all__ = ["PRONOUNS", "Component", "components", "main", "pronouns", "share"]

PRONOUNS = frozenset((
    "it", "its", "that", "this", "these", "those", "who", "whom", "which", "what", "they", "them",
    "their", "he", "she", "one", "ones"))

#: First changes of the tutorial: what is added, and how many files it may take.
CHANGES = {
    "first-change-frame": ("a frame type", 12),
    "first-change-register": ("a register", 5),
    "first-change-board": ("a board", 4),
}


@dataclass
class Component:
    """A class that makes hardware."""

    name: str
    lines: int
    helpers: int
    ports: int
    late: set[str]


def _methods(cls):
    return [node for node in cls.body if isinstance(node, ast.FunctionDef)]


def _elaborates(method):
    arguments = [argument.arg for argument in method.args.args]
    return method.name == "elaborate" or "m" in arguments[:2]


def _set_in(method):
    """Attributes of ``self`` that a method sets."""
    found = set()
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else (
            [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else [])
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and (
                        isinstance(part.value, ast.Name) and part.value.id == "self"):
                    found.add(part.attr)
    return found


def _is_port(node):
    """Whether an expression is ``In(...)`` or ``Out(...)``, or an array of such."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (
        "In", "Out")


def _ports(cls):
    count = sum(isinstance(node, ast.AnnAssign) and _is_port(node.annotation) for node in cls.body)
    for method in _methods(cls):
        if method.name == "__init__":
            count += sum(_is_port(value) for node in ast.walk(method) if isinstance(node, ast.Dict)
                         for value in node.values)
    return count


def components(file: Path) -> list[Component]:
    """The components that a file describes."""
    found = []
    for cls in ast.walk(undisturbed(ast.parse, file.read_text())):
        if not isinstance(cls, ast.ClassDef):
            continue
        makers = [method for method in _methods(cls) if _elaborates(method)]
        if not any(method.name == "elaborate" for method in makers):
            continue
        early = set().union(*(_set_in(method) for method in _methods(cls)
                              if not _elaborates(method)))
        found.append(Component(
            cls.name, sum(method.end_lineno - method.lineno + 1 for method in makers),
            len(makers) - 1, _ports(cls),
            set().union(*(_set_in(method) for method in makers)) - early))
    return found


def share(values, part):
    """The smallest value that so large a part of all do not exceed."""
    return sorted(values)[max(0, round(part * len(values)) - 1)]


def pronouns(folder: Path) -> tuple[int, int]:
    """Numbers of pronouns and of all words in the docstrings below a folder."""
    found = words = 0
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(undisturbed(ast.parse, file.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = re.findall(r"[a-z']+", (ast.get_docstring(node) or "").lower())
                words += len(text)
                found += sum(word in PRONOUNS for word in text)
    return found, words


def _texts(folders):
    for folder in folders:
        found, words = pronouns(folder)
        name = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
        if words:
            yield f"pronouns among the words of docstrings, `{name}`", (
                f"{100 * found / words:.1f} % of {words}")


def _packages():
    for name in FOLDERS:
        for package in sorted(file.parent for file in (ROOT / name).glob("*/__init__.py")):
            rooms = [file.parent for file in package.glob("*/__init__.py")]
            yield from sorted(rooms) if package.name in ("dxpu", "dxpu_sim") else [package]
    yield ROOT / "tests"


def _gateware(folders):
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    found = [component for file in files for component in components(file)]
    if not found:
        return
    lengths = [len(file.read_text().splitlines()) for file in files]
    lengths = [length for length in lengths if length > 1]
    lines = [component.lines for component in found]
    ports = [component.ports for component in found]
    late = [component for component in found if component.late]
    yield "files; lines of one: median, largest", (
        f"{len(lengths)}; {statistics.median(lengths):.0f}, {max(lengths)}")
    yield "components", f"{len(found)}"
    yield "gateware lines of one: median, 90 %, largest", (
        f"{statistics.median(lines):.0f}, {share(lines, 0.9)}, {max(lines)}")
    yield "helper methods that take m", f"{sum(component.helpers for component in found)}"
    yield "ports of one: median, 90 %, most", (
        f"{statistics.median(ports):.0f}, {share(ports, 0.9)}, {max(ports)}")
    yield "attributes first set while elaborating", (
        f"{sum(len(component.late) for component in late)} in {len(late)} classes")


def _rooms():
    folders = [folder for name in FOLDERS for folder in (ROOT / name).rglob("*")
               if folder.is_dir() and any(folder.glob("*.py"))]
    most = max(folders, key=lambda folder: len(list(folder.glob("*.py"))))
    yield "folders; most files in one", (
        f"{len(folders)}; {len(list(most.glob('*.py')))} in {most.relative_to(ROOT)}")
    fabric = [len(list(folder.glob("*.py"))) for folder in folders
              if folder.is_relative_to(ROOT / "hdl/dxpu/fabric")]
    yield "most files in a folder of the fabric", f"{max(fabric)}"


def _imports():
    tree, may = Tree(*(ROOT / folder for folder in FOLDERS)), table()
    yield "circles of imports", f"{len(tree.circles())}"
    pairs = [(name.partition(".")[0], module.partition(".")[0])
             for name, imports in tree.imports.items() for module in imports]
    back = sum(theirs not in {ours, *may[ours]} for ours, theirs in pairs)
    yield "imports that the table forbids", f"{back}"


def _changes():
    for name, (what, _) in CHANGES.items():
        diff = ROOT / "docs/tutorial" / f"{name}.diff"
        yield f"files touched: {what}", f"{len(touched(diff))}"


def main(folders: list[str]) -> None:
    """Print the table."""
    chosen = [Path(folder) for folder in folders]
    rows = list(_gateware(chosen or [ROOT / "hdl/dxpu"]))
    if not folders:
        rows += [*_rooms(), *_imports(), *_changes()]
    rows += _texts(chosen or _packages())
    for what, count in rows:
        print(f"| {what} | {count} |")


if __name__ == "__main__":
    main(sys.argv[1:])
