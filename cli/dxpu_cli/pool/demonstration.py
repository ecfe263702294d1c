"""The pool of ``dxpu demo``: a manager in a process of its own before Verilated proxies."""

import json
from pathlib import Path
from typing import Any

from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError

__all__ = ["CHOICES", "SYSTEM", "PoolDemo"]

#: Two hosts, and a box with two GPUs that forget when they are reset; small, as it is built beside
#: the system of the demo.
SYSTEM = {"width": 64, "boxes": (2,), "hosts": 2, "ports": 2, "paths": 1, "peers": 2,
          "streams": 1, "keys": True, "managed": True}
#: Values of the option: what the machine permits, one of both, or no pool.
CHOICES = ("on", "veth", "socket", "off")
#: Seconds that a command of the pool may take; a free machine needs two.
PATIENCE = 120


class PoolDemo:
    """One run of the pool.

    Parameters
    ----------
    choice : str
        One of :data:`CHOICES` but ``off``.
    seed : int
    folder : Path
        For the files of the run.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        If ``veth`` is wanted where nobody may have one.
    """

    def __init__(self, choice: str, seed: int, folder: Path):
        from dxpu_sim.ethernet.namespace import why_not
        from dxpu_sim.run.runner import Design
        from dxpu_sim.system.design import System

        reason = "" if choice == "socket" else why_not()
        if choice == "veth" and reason:
            raise UserError(f"--pool veth cannot be here ({reason}); --pool socket can")
        self.design = Design(System, SYSTEM)
        self._veth, self._reason = choice != "socket" and not reason, reason
        self._seed, self._folder = seed, folder

    def heading(self) -> str:
        """What is between the manager and the nodes."""
        if self._veth:
            how = "over a veth in a network of its own"
        else:
            how = "at a UNIX socket" + f", not a veth ({self._reason})" * bool(self._reason)
        return f"a pool: 2 hosts, a box with 2 GPUs, and a manager that has their keys, {how}"

    def run(self, progress: Progress) -> dict[str, Any]:
        """Run all steps; the result has ``checks``, ``error`` (``None`` after a good run),
        ``veth`` and ``seconds``."""
        from dxpu_sim.run.runner import SimulationFailed, simulate

        lines, failure = 0, None

        def job() -> None:
            simulate(self.design, "dxpu_sim.system.benches.pool", folder=self._folder,
                     seed=self._seed, env={"DXPU_POOL": json.dumps({
                         "system": SYSTEM, "veth": self._veth, "patience": PATIENCE})})

        def follow() -> None:
            nonlocal lines
            lines = progress.follow(self._folder / "progress.txt", lines)

        progress.step("Starting the simulation of the pool")
        try:
            progress.run(job, follow)
            follow()
        except (SimulationFailed, RuntimeError, OSError) as error:
            failure = str(error).splitlines()[0]
        try:
            result = json.loads((self._folder / "result.json").read_text())
        except (OSError, ValueError):
            result = {"checks": {"pool": False}}
        error = result.get("error")
        if failure and (not error or error.startswith("CancelledError")):
            error = failure
        progress.done(failed=bool(error))
        return {**result, "error": error, "veth": self._veth}
