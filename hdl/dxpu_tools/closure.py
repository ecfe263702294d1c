"""Digest of the behaviour of a module: one digest over all project sources that the module may run.

The sources are found by reading, never by importing: imports at any depth of a module, relative and
lazy imports too, and strings that are a module's dotted name, as benches and commands are named.
``from package import name`` leads to the module that defines the name, so a package that re-exports
all its modules does not tie its users to each of them.

A source counts by its meaning: comments, docstrings, layout and line numbers change no digest.
Files beside a module that are not Python count whole.

To read the sources takes a second or two, so digests are kept in the cache until any source
changes.
"""

import ast
import importlib.util
import sys
from functools import cache as remember, cached_property
from pathlib import Path

from .cache import digest, entry
from .collection import undisturbed

__all__ = ["Sources", "packages_digest", "project_sources"]

#: Packages of the project; ``tests`` only if imported before.
PACKAGES = ("dxpu", "dxpu_tools", "dxpu_model", "dxpu_performance", "dxpu_sim", "dxpu_host",
            "dxpu_boards", "dxpu_manage", "dxpu_manager", "dxpu_cli")


@remember
def packages_digest() -> str:
    """Digest of the interpreter and of all installed distributions, by name and version.

    The folder of a distribution's metadata has both in its name. Reading the metadata of all takes
    half a second.
    """
    there = sorted({folder.name for place in sys.path if place
                    for kind in ("dist", "egg") for folder in Path(place).glob(f"*.{kind}-info")})
    return digest(sys.version, there)


@remember
def project_sources() -> "Sources":
    """Sources of all packages of the project that are installed."""
    return Sources(*_folders((*PACKAGES, *(["tests"] if "tests" in sys.modules else []))))


def _folders(packages):
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            yield Path(spec.origin).parent


class Sources:
    """All Python sources below some folders from which modules are imported.

    Parameters
    ----------
    roots : paths
        Packages: a file ``b.py`` of package ``a`` is module ``a.b``. Or folders on Python's path
        that are no packages: a file ``a/b.py`` of such a folder is module ``a.b``.
    """

    def __init__(self, *roots: Path):
        self._files: dict[str, Path] = {}
        for root in roots:
            path = root.parent if (root / "__init__.py").exists() else root
            for file in sorted(root.rglob("*.py")):
                parts = file.relative_to(path).with_suffix("").parts
                if parts[-1] == "__init__":
                    parts = parts[:-1]
                if parts:
                    self._files[".".join(parts)] = file
        self._parsed: dict[str, _Module] = {}

    def __contains__(self, module: str) -> bool:
        return module in self._files

    def name_of(self, file: Path) -> str | None:
        """Module name of ``file``, the shortest if there are several; None if ``file`` is no
        module."""
        names = [name for name, there in self._files.items() if there.samefile(file)]
        return min(names, key=len, default=None)

    def reached(self, *modules: str) -> set[str]:
        """Names of all modules that ``modules`` may run, including ``modules``."""
        seen: set[str] = set()
        waiting = [(name, None) for name in modules]
        done = set()
        while waiting:
            target = waiting.pop()
            if target in done:
                continue
            done.add(target)
            module, attribute = target
            if module not in self._files:
                continue
            # The packages around a module are run first, for effects of their own.
            parts = module.split(".")
            seen.update(name for i in range(1, len(parts))
                        if (name := ".".join(parts[:i])) in self._files)
            seen.add(module)
            parsed = self._parse(module)
            if attribute is None or not parsed.is_package:
                waiting += parsed.uses
            else:
                waiting += self._resolve(parsed, attribute)
        return seen

    def _resolve(self, package, attribute):
        """Targets of ``from package import attribute``."""
        if f"{package.name}.{attribute}" in self._files:
            return [(f"{package.name}.{attribute}", None)]
        if attribute in package.names:
            return [package.names[attribute]]
        # Defined in the package, or in a module that the package imports by star.
        return package.uses

    def digest(self, *modules: str, hardware: bool = True) -> str:
        """Digest of all sources that ``modules`` may run.

        Parameters
        ----------
        hardware : bool
            Include the hardware (``elaborate`` and its helpers). Without, the digest fits programs
            that run beside hardware whose netlist is known otherwise.
        """
        key = digest(packages_digest(), Path(__file__).read_bytes(), modules, hardware,
                     self._content)
        with entry("sources", key) as (path, done):
            file = path / "digest"
            if not done:
                file.write_text(self._digest(modules, hardware))
            return file.read_text()

    @cached_property
    def _content(self):
        """Digest of all files, byte by byte."""
        return digest(*(x for name, file in self._files.items() for x in (name, file.read_bytes())),
                      *(x for file in _beside(self._files.values())
                        for x in (str(file), file.read_bytes())))

    def _digest(self, modules, hardware):
        names = sorted(self.reached(*modules))
        beside = _beside(self._files[name] for name in names)
        return digest(packages_digest(),
                      *(x for name in names for x in (name, self._parse(name).meaning(hardware))),
                      *(x for file in beside for x in (file.name, file.read_bytes())))

    def _parse(self, name):
        if name not in self._parsed:
            self._parsed[name] = _Module(name, self._files[name], self._files)
        return self._parsed[name]


def _beside(modules):
    """Files in the folders of some modules that are not Python, in order."""
    return sorted({file for folder in {module.parent for module in modules}
                   for file in folder.iterdir()
                   if file.is_file() and file.suffix not in (".py", ".pyc")})


class _Module:
    """One source: the modules it uses, and its meaning."""

    def __init__(self, name, file, files):
        self.name = name
        self.is_package = file.stem == "__init__"
        self._files = files
        self._source = file.read_bytes()
        self._meanings = {}
        #: Names imported from modules, to ``(module, attribute)``.
        self.names = {}
        #: All ``(module, attribute)`` that are used; attribute None for the whole module.
        self.uses = []
        for node in ast.walk(_tree(self._source)):
            self._look_at(node)

    def _look_at(self, node):
        if isinstance(node, ast.Import):
            self.uses += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node.module or "", node.level)
            for alias in node.names:
                target = (base, None if alias.name == "*" else alias.name)
                self.uses.append(target)
                self.names[alias.asname or alias.name] = target
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in self._files and "." in node.value:
                self.uses.append((node.value, None))
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            # `f"package.{name}"` may be any module of the package.
            package, dot, _ = str(node.values[0].value).rpartition(".")
            if dot and package in self._files:
                self.uses += [(name, None) for name in self._files
                              if name.startswith(f"{package}.")]

    def _absolute(self, module, level):
        if not level:
            return module
        parts = self.name.split(".")
        parts = parts[:len(parts) - level + self.is_package]
        return ".".join([*parts, module] if module else parts)

    def meaning(self, hardware):
        """Digest of the source without comments and docstrings, and without hardware unless
        wanted."""
        if hardware not in self._meanings:
            tree = _Bare(hardware).visit(_tree(self._source))
            self._meanings[hardware] = digest(ast.dump(tree))
        return self._meanings[hardware]


def _tree(source):
    """Syntax tree of a source."""
    return undisturbed(ast.parse, source)


class _Bare(ast.NodeTransformer):
    """Removes docstrings, and bodies of functions that only make hardware."""

    def __init__(self, hardware):
        self._hardware = hardware

    def _body(self, node):
        self.generic_visit(node)
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(
                first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_Module = visit_ClassDef = visit_AsyncFunctionDef = _body

    def visit_FunctionDef(self, node):
        node = self._body(node)
        if not self._hardware and _makes_hardware(node):
            node.body = [ast.Pass()]
        return node


def _makes_hardware(function):
    """Whether a function is ``elaborate``, or adds to a module ``m`` that it takes as an
    argument."""
    arguments = [argument.arg for argument in function.args.args]
    return function.name == "elaborate" or arguments[:1] == ["m"] or arguments[:2] == ["self", "m"]
