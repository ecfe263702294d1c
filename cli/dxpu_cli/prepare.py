"""Builds the simulators needed by a command: in parallel, each in a process of its own.

``python -m dxpu_cli.prepare`` is such a process: it builds one simulator, and reports progress in
lines of text.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dxpu_sim.run.verilate import BuildFailed, Design, build, is_built
from dxpu_tools import children
from dxpu_tools.errors import Failed, UserError

from .progress import Progress

__all__ = ["Simulator", "prepare"]

#: Exit status of the program: mistake of the user (as for commands), failure.
_WRONG, _FAILED = 2, 1


@dataclass(frozen=True)
class Simulator:
    """A simulator to build: design, and options of :func:`~dxpu_sim.run.runner.build`."""

    design: Design
    options: Mapping[str, object] = field(default_factory=dict)


def prepare(simulators: Mapping[str, Simulator], progress: Progress, *,
            jobs: int | None = None) -> None:
    """Build the simulators that are missing in the cache, as one step of the progress.

    Parameters
    ----------
    simulators : dict
        Simulators by their names in the progress.
    jobs : int
        Builds at a time; by default the number of processors.

    Raises
    ------
    ~dxpu_tools.errors.UserError, ~dxpu_tools.errors.Failed
    """
    progress.step("Preparing the simulator" + "s" * (len(simulators) > 1))
    missing = {name: s for name, s in simulators.items() if not is_built(s.design, **s.options)}
    if missing:
        news = dict.fromkeys(missing, "waiting")
        progress.run(lambda: _build_all(missing, news, jobs or os.cpu_count() or 1),
                     lambda: progress.update(_together(news)))
    progress.update(f"{len(simulators) - len(missing)} of {len(simulators)} cached"
                    if missing and len(simulators) > 1 else "" if missing else "cached")
    progress.done()


def _together(news):
    if len(news) == 1:
        return next(iter(news.values()))
    return "; ".join(f"{name}: {what}" for name, what in news.items())


def _build_all(simulators, news, jobs):
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_build, name, simulator, news)
                   for name, simulator in simulators.items()]
        try:
            for one in running:
                one.result()
        except BaseException:
            for one in running:
                one.cancel()
            raise


def _build(name, simulator, news):
    """Build a simulator in another process: Python elaborates one design at a time."""
    said: Sequence[str] = ()
    with children.child(
            [sys.executable, "-m", "dxpu_cli.prepare"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}) as process:
        with process.stdin as given:
            pickle.dump(simulator, given)
        lines = []
        for line in process.stdout:
            lines.append(line.decode(errors="replace").rstrip())
            if lines[-1].startswith("news "):
                news[name] = lines.pop().removeprefix("news ")
        said = lines
    news[name] = "done"
    if process.returncode == _WRONG:
        raise UserError(said[-1])
    if process.returncode:
        raise Failed(said[-1] if said else f"the simulator {name} could not be built: status "
                     f"{process.returncode}")


def main() -> int:
    """Build the simulator given on standard input."""
    simulator = pickle.load(sys.stdin.buffer)
    last = ""

    def news(text):
        nonlocal last
        if text != last:
            print(f"news {text}", flush=True)
            last = text

    try:
        build(simulator.design, news=news, **simulator.options)
    except UserError as error:
        print(error)
        return _WRONG
    except BuildFailed as error:
        print(str(error).splitlines()[0])
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
