"""Runs cocotb benches on simulated designs (:mod:`.verilate`)."""

import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from dxpu_tools import cache

from . import recall
from .verilate import (
    FULL, BuildFailed, Design, build, is_built, lint, program_runner, verilog,
)
from .watchdog import NoProgress, Watchdog

__all__ = ["BuildFailed", "Design", "SimulationFailed", "build", "is_built", "lint",
           "said", "simulate", "verilog"]


#: Module loaded before each bench.
INSIDE = "dxpu_sim.run.inside"


class SimulationFailed(Exception):
    """A cocotb test failed; the message gives its name and log file."""


def simulate(design: Design, bench: str, *, testcase: str | None = None, env: dict | None = None,
             waves: str = "", window: bool = False, args: tuple[str, ...] = (),
             public: tuple[str, ...] = (), plusargs: tuple[str, ...] = (),
             folder: str | Path | None = None, seed: int | None = None,
             verbose: bool = False) -> Path:
    """Run the cocotb tests of module ``bench`` on ``design``; returns the run's folder.

    Parameters
    ----------
    testcase : str
        Regular expression that selects tests. Default: all tests.
    env : dict
        Environment variables that the bench reads (its parameters), as strings.
    waves, args, public
        Options of :func:`build`. The trace of the whole run is ``dump.vcd`` or ``dump.fst``.
    window : bool
        The bench traces a part of the run by itself (:class:`dxpu_sim.run.trace.Trace`); there is
        no other trace.
    folder : path
        Folder of the run (log, results, waves). Default ``build/sim/<bench>-<digest>``.
    seed : int
        Default ``$DXPU_SEED``, else 1. Printed in the log; the same seed gives the same run.

    Raises
    ------
    SimulationFailed
        If a test failed or none ran.
    """
    built = build(design, waves=waves, args=args, public=public)
    seed = int(os.environ.get("DXPU_SEED", "1")) if seed is None else seed
    env = {k: str(v) for k, v in (env or {}).items()}
    if folder is None:
        name = f"{bench.rsplit('.', 1)[-1]}-{cache.digest(built, testcase, env, seed)[:8]}"
        folder = Path("build", "sim", name)
    folder = Path(folder).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with recall.simulation(folder, built.name, bench, testcase, sorted(env.items()), waves, window,
                           plusargs, seed) as needed:
        if needed:
            _run(built, bench, folder, seed, log=None if verbose else folder / "run.log",
                 test_filter=testcase, extra_env={"DXPU_DESIGN": design.key, **env},
                 waves=bool(waves) and not window, plusargs=list(plusargs))
    return folder


def _run(built, bench, folder, seed, *, log, extra_env, **options):
    """Run a Verilated program in ``folder``; raises :exc:`SimulationFailed`."""
    # A cached executable may have been linked against another clone's environment.
    from cocotb_tools import config
    libraries = os.pathsep.join(filter(None, [str(config.libs_dir),
                                              os.environ.get("LD_LIBRARY_PATH")]))
    results, written = folder / "results.xml", folder / "run.log"
    watchdog = Watchdog(folder)
    try:
        program_runner(watchdog).test(
            test_module=[INSIDE, bench], hdl_toplevel="top", hdl_toplevel_lang="verilog",
            build_dir=built, test_dir=folder, seed=seed, extra_env={
                **extra_env, **watchdog.environment, "DXPU_SEED": str(seed),
                "COCOTB_REWRITE_ASSERTION_FILES": _explained(bench),
                "LD_LIBRARY_PATH": libraries},
            results_xml=str(results), log_file=log, **options)
    except (SystemExit, RuntimeError) as error:
        if isinstance(error, NoProgress) or not results.exists():
            tail = _tail(written)
            if FULL in tail:
                error = f"the disk is full: free some space and run it again ({error})"
            raise SimulationFailed(f"{bench}: {error}; see {written}\n{tail}") from None
    finally:
        watchdog.close()
    cases = list(ET.parse(results).getroot().iter("testcase"))
    failed = [c.get("name") for c in cases
              if c.find("failure") is not None or c.find("error") is not None]
    if failed or not cases:
        what = ", ".join(failed) or "no test ran"
        raise SimulationFailed(
            f"{bench} (seed {seed}): {what}; see {written}\n{_tail(written)}")


def _explained(bench):
    """Files whose failed assertions show the values compared: those of ``bench`` and this package.

    By default cocotb rewrites every module that is imported, which takes longer than many a run.
    """
    return f"*/dxpu_sim/*.py */{bench.replace('.', '/')}.py"


def said(folder: Path, name: str) -> str:
    """Output of a bench in its run in ``folder``: the lines that begin with ``name`` and a
    colon."""
    return "\n".join(line for line in (folder / "run.log").read_text().splitlines()
                     if line.startswith(f"{name}:"))


def _tail(log: Path, chars: int = 6000) -> str:
    return log.read_text(errors="replace")[-chars:] if log.exists() else ""
