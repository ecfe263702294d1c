"""Who imports whom: as the table in docs/architecture.md says, and never in a circle."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from dxpu_tools.collection import undisturbed

ROOT = Path(__file__).parents[2]
FOLDERS = ("hdl", "model", "host", "boards", "manager", "sim", "cli")


class Tree:
    """Modules below some folders, and what each imports of the others at any depth of its source,
    relatively, lazily or for type checkers.

    Parameters
    ----------
    folders : paths
    """

    def __init__(self, *folders):
        self.files = {}
        for folder in folders:
            for file in folder.rglob("*.py"):
                parts = file.relative_to(folder).with_suffix("").parts
                self.files[".".join(parts).removesuffix(".__init__")] = file
        self.imports = {name: self._imports(name) for name in self.files}

    def _imports(self, name):
        found = set()
        for node in ast.walk(undisturbed(ast.parse, self.files[name].read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = self._base(name, node)
                for alias in node.names:
                    module = f"{base}.{alias.name}"
                    found.add(module if module in self.files else base)
        return {module for module in found if module in self.files and module != name}

    def _base(self, name, node):
        if not node.level:
            return node.module
        package = name.split(".")
        if self.files[name].stem != "__init__":
            package = package[:-1]
        package = package[:len(package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])

    def circles(self):
        """Sets of modules each of which imports, directly or not, all of its set."""
        reached = {}
        for start in self.imports:
            seen, todo = set(), [start]
            while todo:
                for module in self.imports[todo.pop()] - seen:
                    seen.add(module)
                    todo.append(module)
            reached[start] = seen
        return {frozenset(b for b in reached[a] if a in reached[b])
                for a in reached if a in reached[a]}


def table():
    """Package to the packages that it may import, from the page."""
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `\w+/(dxpu\w*)` \| .* \| (.*) \|$", page, re.MULTILINE)
    return {package: set(re.findall(r"`(dxpu\w*)`", may)) for package, may in rows}


@pytest.fixture(scope="module")
def tree():
    return Tree(*(ROOT / folder for folder in FOLDERS))


def test_the_table_has_every_package(tree):
    assert set(table()) == {name for name in tree.files if "." not in name}


def test_packages_import_what_the_table_says(tree):
    may = table()
    for name, imports in tree.imports.items():
        ours = name.partition(".")[0]
        for module in imports:
            theirs = module.partition(".")[0]
            assert theirs == ours or theirs in may[ours], f"{name} imports {module}"


def test_nobody_imports_the_tests(tree):
    for name, file in tree.files.items():
        assert not re.search(r"^\s*(from|import) tests\b", file.read_text(), re.MULTILINE), name


def test_models_import_encodings_only(tree):
    page = (ROOT / "docs/architecture.md").read_text()
    said = re.search(r"The golden models may import these modules of `dxpu`:(.*?)\n\n", page,
                     re.DOTALL)[1]
    allowed = set(re.findall(r"`([\w.]+)`", said))
    used = {module for name, imports in tree.imports.items() if name.startswith("dxpu_model")
            for module in imports if module.partition(".")[0] == "dxpu"}
    assert used == allowed


def test_the_switch_imports_nothing_of_the_fabric(tree):
    for name, imports in tree.imports.items():
        if name.startswith(("dxpu.switch", "dxpu.tlp", "dxpu.mapping", "dxpu.attach")):
            assert not [module for module in imports if module.startswith("dxpu.fabric")], name


def test_rooms_of_the_fabric_are_in_order(tree):
    """A room never imports one that imports it."""
    rooms = defaultdict(set)
    for name, imports in tree.imports.items():
        for module in imports:
            here, there = (part.split(".")[2:3] for part in (name, module))
            if name.startswith("dxpu.fabric.") and module.startswith("dxpu.fabric.") and (
                    here != there):
                rooms[here[0]].add(there[0])
    assert len(rooms) > 5

    def below(room, seen=()):
        assert room not in seen, seen
        for other in rooms[room]:
            below(other, (*seen, room))

    for room in list(rooms):
        below(room)


def test_there_are_no_circles(tree):
    assert tree.circles() == set()


@pytest.mark.parametrize("line", [
    "from . import two", "from .two import x", "from pack import two", "import pack.two",
    "def f():\n    from .two import x", "if TYPE_CHECKING:\n    from .two import x"])
def test_it_sees_every_kind_of_import(tmp_path, line):
    (tmp_path / "pack").mkdir()
    for name, text in (("__init__", ""), ("one", line), ("two", "from pack.one import y\n")):
        (tmp_path / "pack" / f"{name}.py").write_text(text)
    assert Tree(tmp_path).circles() == {frozenset({"pack.one", "pack.two"})}
