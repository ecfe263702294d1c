"""Captures of a whole simulated system: every frame and every TLP, in one file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dxpu_sim.ethernet.capture import TAPS, Capture
from dxpu_sim.ethernet.pcap import PcapWriter
from dxpu_sim.pcie.capture import capture_tlps
from dxpu_sim.pcie.ports import Mailbox, TlpRecord

__all__ = ["captured", "public"]

#: A frame of 1,522 bytes is known 12 us after its first byte, a TLP of 4 KiB less than that.
WINDOW_NS = 20_000


def public(paths: int) -> tuple[str, ...]:
    """What a build of :class:`~dxpu_sim.system.design.System` must make public for captures."""
    return tuple(f"top.ethernet{path}:{TAPS}" for path in range(paths))


@contextmanager
def captured(dut, mailboxes: Iterable[Mailbox], names: Sequence[str], path: Path, *,
             period_ns: float,
             remark: Callable[[str, TlpRecord], str]) -> Iterator[PcapWriter]:
    """Write all that passes meanwhile into a file: frames as they enter the Ethernet switches, TLPs
    at the PCIe ports.

    Parameters
    ----------
    dut : handle
        A :class:`~dxpu_sim.system.design.System`, built with :func:`public`.
    mailboxes : iterable of :class:`~dxpu_sim.pcie.ports.Mailbox`
        The PCIe ports.
    names : list of str
        Names of the proxies, in the order of the ports of the switches.
    path : path
        File to create; whole at the end, however the run ends.
    period_ns : float
        Period of the core clock.
    remark : function
        Comment of a TLP that has left the design at the port of that name.
    """
    with PcapWriter(path, window_ns=WINDOW_NS) as writer:
        for number in range(len(dut.dead)):
            # The first switch has a port for strangers.
            ports = [*names, *["stranger"] * (number == 0)]
            Capture(getattr(dut, f"ethernet{number}"), writer, ports=len(ports),
                    name=[f"{name} path {number}" for name in ports])
        capture_tlps(mailboxes, writer, period_ns=period_ns, remark=remark)
        yield writer
