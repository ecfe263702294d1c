"""Captures of the TLPs at PCIe ports of a design."""

from collections.abc import Callable, Iterable

from cocotb.utils import get_sim_time

from dxpu_sim.ethernet.pcap import TLP, PcapWriter

from .ports import Mailbox, TlpRecord

__all__ = ["capture_tlps"]

#: Comment of a TLP that the design has marked as not to be used.
NULLIFIED = "marked as bad by the sender"


def capture_tlps(mailboxes: Iterable[Mailbox], writer: PcapWriter, *, period_ns: float,
                 remark: Callable[[str, TlpRecord], str] = lambda name, record: "") -> None:
    """Write every TLP at these ports from now on, with its direction, seen from the proxy.

    Parameters
    ----------
    mailboxes : iterable of :class:`~dxpu_sim.pcie.ports.Mailbox`
        Each gets an interface with its name.
    writer : PcapWriter
    period_ns : float
        Period of the core clock. The time of a TLP is that of its first beat.
    remark : function
        Comment of a TLP that has left the design at the port of that name.
    """
    for mailbox in mailboxes:
        _attach(mailbox, writer, writer.interface(mailbox.name, TLP), period_ns, remark)


def _attach(mailbox: Mailbox, writer: PcapWriter, interface: int, period_ns: float,
            remark: Callable[[str, TlpRecord], str]) -> None:
    def note(record: TlpRecord, inbound: bool) -> None:
        beats = record.last_cycle - record.first_cycle
        time = round(get_sim_time("ns") - (beats + 1) * period_ns)
        comment = NULLIFIED if record.discard else "" if inbound else remark(mailbox.name, record)
        writer.write(interface, time, record.raw, comment, inbound=inbound)

    mailbox.sent.append(lambda record: note(record, True))
    mailbox.received.append(lambda record: note(record, False))
