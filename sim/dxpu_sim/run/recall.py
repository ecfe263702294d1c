"""Memory of passed runs by content: long tests run again only after a change.

There are two memories, in the cache beside the builds:

- *runs*: the folder of a simulation. Key: its Verilated program (so netlist, options and tools),
  the sources of its bench, its parameters and its seed (:func:`simulation`);
- *passed*: tests that passed. Key: all sources that the test may run (:mod:`dxpu_tools.closure`),
  the seed, and the files of the tree that it reads (:class:`Passed`).

Failures are never remembered. Both memories are used only inside :func:`remembering`, as ``make
test-long`` does for each long test, so ``make test`` and the commands always run everything.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

from dxpu_tools import cache
from dxpu_tools.closure import Sources, packages_digest, project_sources

__all__ = ["Passed", "remembering", "simulation"]

#: Largest folder of a run that is kept, in bytes; larger runs are repeated.
_LARGEST = 64 << 20
_ACTIVE = False


@contextlib.contextmanager
def remembering(wanted: bool = True):
    """Take simulations in the block from memory if known, and keep them if they pass."""
    global _ACTIVE
    before, _ACTIVE = _ACTIVE, wanted
    try:
        yield
    finally:
        _ACTIVE = before


@contextlib.contextmanager
def simulation(folder: Path, built: str, bench: str, *parameters: object):
    """A simulation that writes into ``folder``; yields whether it must be run.

    If not, ``folder`` holds the files of the same run that passed before. A block left by an
    exception keeps nothing.

    Parameters
    ----------
    folder : path
        Existing and empty.
    built : str
        Key of the Verilated program in the cache.
    bench : str
        Module of the cocotb tests.
    parameters : objects
        All other dependencies of the run; compared by ``repr``.
    """
    sources = project_sources() if _ACTIVE else None
    if sources is None or bench not in sources:
        yield True
        return
    # `built` covers the netlist, so the description of the hardware does not count.
    key = cache.digest(built, sources.digest(bench, hardware=False), *parameters)
    with contextlib.suppress(_TooLarge), cache.entry("runs", key) as (kept, done):
        if done:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
            yield False
            return
        yield True
        files = [file for file in folder.rglob("*") if file.is_file()]
        if sum(file.stat().st_size for file in files) > _LARGEST:
            raise _TooLarge
        shutil.copytree(folder, kept, dirs_exist_ok=True)


class _TooLarge(Exception):
    """The folder of a run is too large to keep."""


class Passed:
    """Tests that passed, by content.

    Parameters
    ----------
    root : path
        Root of the source tree.
    roots : paths
        Folders of the tree from which modules are imported.
    """

    def __init__(self, root: Path, roots: list[Path]):
        self._root = root.resolve()
        self._sources = Sources(*roots)
        self._reads: set[str] | None = None
        sys.addaudithook(self._watch)

    def key(self, file: Path, test: str, *parameters: object) -> str:
        """Key of a test: sources that ``file`` may run, name of the test, other dependencies."""
        module = self._sources.name_of(file)
        if module is None:
            raise ValueError(f"{file} must be below one of the folders of sources")
        settings = {name: value for name, value in os.environ.items()
                    if name.startswith("DXPU_") and name != "DXPU_CACHE"}
        return cache.digest(self._sources.digest(module), packages_digest(), test,
                            sorted(settings.items()), *parameters)

    def known(self, key: str) -> bool:
        """Whether the test with this key passed, and the files it read are unchanged."""
        try:
            reads = json.loads(self._file(key).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        return all(self._content(name) == content for name, content in reads.items())

    @contextlib.contextmanager
    def watch(self, key: str):
        """Run a test in this block; without an exception the test is remembered under ``key``."""
        self._reads = set()
        try:
            yield
            reads = {name: self._content(name) for name in sorted(self._reads)}
        finally:
            self._reads = None
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(reads, indent=1))
        part.replace(file)

    def _file(self, key):
        return cache.cache_root() / "passed" / f"{key}.json"

    def _watch(self, event, arguments):
        if self._reads is None or event != "open" or not isinstance(arguments[0], (str, bytes)):
            return
        mode = arguments[1]
        if isinstance(mode, str) and not set(mode) & set("wxa+"):
            file = Path(os.path.abspath(os.fsdecode(arguments[0])))
            if file.is_relative_to(self._root):
                name = file.relative_to(self._root).as_posix()
                if name.split("/")[0] not in ("build", ".git", ".venv") and file.suffix not in (
                        ".py", ".pyc"):
                    self._reads.add(name)

    def _content(self, name):
        try:
            return cache.digest((self._root / name).read_bytes())
        except OSError:
            return None
