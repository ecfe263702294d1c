"""What passed is remembered by content, so that long tests are run again only if something changed.

Two memories, in the cache beside the builds:

- *runs*: what a simulation left in its folder, by its Verilated program (so by netlist, options and
  tools), the sources of its bench, its parameters and its seed (:func:`simulation`);
- *passed*: tests that passed, by all sources that they may run (:mod:`.closure`), the seed, and the
  files of the tree that they read (:class:`Passed`).

Nothing that failed is remembered. Both are asked only while :func:`remembering` is entered, as
``make test-long`` does for each long test, so that ``make test`` and the commands always run all.
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

#: Bytes of a run's folder that is worth keeping; larger ones are run again.
_LARGEST = 64 << 20
_ACTIVE = False


@contextlib.contextmanager
def remembering(wanted: bool = True):
    """Simulations of the block are taken from memory if they are there, and kept if they pass."""
    global _ACTIVE
    before, _ACTIVE = _ACTIVE, wanted
    try:
        yield
    finally:
        _ACTIVE = before


@contextlib.contextmanager
def simulation(folder: Path, built: str, bench: str, *parameters: object):
    """A simulation that writes into ``folder``; yields whether it has to be run.

    If it has not, ``folder`` holds what the same run left when it passed. If the block is left by
    an exception nothing is kept.

    Parameters
    ----------
    folder : path
        There, and empty.
    built : str
        Key of the Verilated program in the cache.
    bench : str
        Module of the cocotb tests.
    parameters : objects
        All else that the run depends on; compared by ``repr``.
    """
    sources = project_sources() if _ACTIVE else None
    if sources is None or not sources.reached(bench):
        yield True
        return
    # The netlist is in `built`, so how the design is described does not count.
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
    """A run's folder is not kept."""


class Passed:
    """Tests that passed, by content.

    Parameters
    ----------
    root : path
        The tree.
    roots : paths
        Its folders of which modules are imported.
    """

    def __init__(self, root: Path, roots: list[Path]):
        self._root = root.resolve()
        self._sources = Sources(*roots)
        self._reads: set[str] | None = None
        sys.addaudithook(self._watch)

    def key(self, file: Path, test: str, *parameters: object) -> str:
        """Key of a test: of what ``file`` may run, its name, and what else it depends on."""
        module = self._sources.name_of(file)
        if module is None:
            raise ValueError(f"{file} must be below one of the folders of sources")
        settings = {name: value for name, value in os.environ.items()
                    if name.startswith("DXPU_") and name != "DXPU_CACHE"}
        return cache.digest(self._sources.digest(module), packages_digest(), test,
                            sorted(settings.items()), *parameters)

    def known(self, key: str) -> bool:
        """Whether the test of this key passed, and what it read then is unchanged."""
        try:
            reads = json.loads(self._file(key).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        return all(self._content(name) == content for name, content in reads.items())

    @contextlib.contextmanager
    def watch(self, key: str):
        """Run a test in this block: it is remembered under ``key`` unless an exception leaves."""
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
