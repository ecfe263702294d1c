"""Errors that the ports find: status bits, advanced error reporting, error messages.

All of it is beside the way of the TLPs. Status bits are in LUT RAM: those of the bridges on the way
for each direction, those of the ports that report apart. Headers wait in a few slots until they are
in the log, which is a part of the memory of the configuration spaces.

Ref: PCIe Base 5.0, 6.2 (error signalling), 7.5.1 and 7.5.3 (status bits), 7.8.4 (AER), 7.9.15
(DPC).
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.priority import first_one
from dxpu.stream import connect
from dxpu.switch.messages.messages import MessageRequest
from dxpu.switch.types import PortState

from .header_log import HeaderWriter
from .messages import ErrorMessages
from .path_status import PathStatus
from .registers import ErrorPolicy, ErrorRegisters, OtherOutcome
from .types import (
    ContainmentTrigger, ErrorKind, ErrorOrigin, ErrorRecord, ErrorReport, HeaderReader, LogWrite,
    MalformedTlp, PolicyPort, StatusRegisters,
)

__all__ = ["ErrorReporting", "OtherErrors"]


class OtherErrors(wiring.Component):
    """Errors of TLPs that were removed before the switch, and errors without a TLP, one by one.

    An error without a TLP is remembered, once for each port, until it is its turn; malformed TLPs
    and they go by turns.

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    malformed : stream of :class:`~.types.MalformedTlp`
    internal, surprise : ``ports``
        Pulses: an uncorrectable internal error; the link was lost by surprise.
    o : stream of :class:`~.types.ErrorReport`
    blank : 1
        The error that was taken last has no header; else it is that on ``malformed``.
    outcome : :class:`~.registers.OtherOutcome`
        Of the error that was taken.
    written : 1
        Strobe: the header is in the log.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "malformed": In(stream.Signature(MalformedTlp)),
            "internal": In(ports),
            "surprise": In(ports),
            "o": Out(stream.Signature(ErrorReport)),
            "blank": Out(1),
            "outcome": In(OtherOutcome),
            "written": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        internal, surprise, serve = (Signal(self._ports, name=name)
                                     for name in ("was_internal", "was_surprise", "serve"))
        which, of_tlp, port = Signal(ErrorKind), Signal(), Signal(range(self._ports))
        is_surprise, ends = Signal(), Signal()
        m.d.sync += [
            internal.eq(internal & ~Mux(is_surprise, 0, serve) | self.internal),
            surprise.eq(surprise & ~Mux(is_surprise, serve, 0) | self.surprise),
        ]
        m.d.comb += [
            is_surprise.eq(surprise.any()),
            port.eq(first_one(Mux(is_surprise, surprise, internal))),
            self.o.p.origin.eq(ErrorOrigin.OTHER),
            self.o.p.kind.eq(which),
            self.o.p.kept.eq(1),
            self.blank.eq(~of_tlp),
            self.malformed.ready.eq(ends & of_tlp),
        ]
        function = Signal(6)
        m.d.comb += self.o.p.function.eq(function)
        with m.FSM():
            with m.State("Idle"):
                some = is_surprise | internal.any()
                with m.If(some & ~(self.malformed.valid & ~of_tlp)):
                    m.d.comb += serve.eq(1 << port)
                    m.d.sync += [
                        of_tlp.eq(0), function.eq(port + 1),
                        which.eq(Mux(is_surprise, ErrorKind.SURPRISE_DOWN, ErrorKind.INTERNAL)),
                    ]
                    m.next = "Report"
                with m.Elif(self.malformed.valid):
                    m.d.sync += [of_tlp.eq(1), function.eq(self.malformed.p.function),
                                 which.eq(ErrorKind.MALFORMED)]
                    m.next = "Report"
            with m.State("Report"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "Outcome"
            with m.State("Outcome"):
                with m.If(self.outcome.strobe):
                    m.d.comb += ends.eq(~self.outcome.logged)
                    m.next = "Idle"
                    with m.If(self.outcome.logged):
                        m.next = "Log"
            with m.State("Log"):
                with m.If(self.written):
                    m.d.comb += ends.eq(1)
                    m.next = "Idle"
        return m


class ErrorReporting(wiring.Component):
    """What the ports note and say of errors. This only wires.

    Nothing waits for anything but its own turn in a pipeline: a record is taken at least every
    other cycle, with one cycle more for each record of the other direction and register access
    by software. Its status bits can be read five cycles after it was taken, eight with all that.
    First Error Pointer and the logs follow when the header is written: 15 cycles later if it is
    alone, and 4 more for each header that is kept before it, or 8 if that has prefixes.

    What comes faster than it can be logged or told is counted.

    Parameters
    ----------
    ports : int
        Downstream ports.
    identity : Identity
        What the slots have.

    Members
    -------
    records : array of 2 streams of :class:`~.types.ErrorRecord`
        Of TLPs from the host and from slots.
    readers : array of 2 :class:`~.types.HeaderReader`
    malformed : stream of :class:`~.types.MalformedTlp`
    internal, surprise : ``ports``
        See :class:`OtherErrors`.
    states : array of :class:`PortState`
    upstream_id : 13
        Bus and device number of the upstream port.
    config : :class:`~dxpu.mapping.ConfigUpdate`
    status : :class:`~.types.StatusRegisters`
    log : stream of :class:`~.types.LogWrite`
    o : stream of :class:`~dxpu.switch.messages.messages.MessageRequest`
    trigger : :class:`~.types.ContainmentTrigger`
    announce, announced : ``ports``
        See :class:`~.messages.ErrorMessages`.
    policy : :class:`~.types.PolicyPort`
        For who decides about TLPs of slots; with Downstream Port Containment only.
    stat_unlogged, stat_unsent : 1
        See :class:`~.registers.ErrorRegisters`, :class:`~.messages.ErrorMessages`.
    """

    def __init__(self, ports, *, identity):
        self._ports, self._dpc = ports, identity.slot.dpc
        super().__init__({
            "records": In(stream.Signature(ErrorRecord)).array(2),
            "readers": Out(HeaderReader()).array(2),
            "malformed": In(stream.Signature(MalformedTlp)),
            "internal": In(ports),
            "surprise": In(ports),
            "states": In(PortState).array(ports + 1),
            "upstream_id": In(13),
            "config": In(ConfigUpdate),
            "status": In(StatusRegisters()),
            "log": Out(stream.Signature(LogWrite)),
            "o": Out(stream.Signature(MessageRequest)),
            "trigger": Out(ContainmentTrigger),
            "announce": In(ports),
            "announced": Out(ports),
            "policy": In(PolicyPort()),
            "stat_unlogged": Out(1),
            "stat_unsent": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = ErrorRegisters(self._ports, dpc=self._dpc)
        m.submodules.policy = policy = ErrorPolicy(self._ports, readers=1 + self._dpc)
        m.submodules.other = other = OtherErrors(self._ports)
        m.submodules.writer = writer = HeaderWriter(self._ports)
        m.submodules.messages = messages = ErrorMessages(self._ports)
        paths = []
        for origin in (ErrorOrigin.HOST, ErrorOrigin.SLOT):
            n = origin.value
            m.submodules[f"path{n}"] = path = PathStatus(self._ports, origin=origin)
            paths.append(path)
            connect(m, wiring.flipped(self.records[n]), path.i)
            connect(m, path.o, registers.reports[n])
            reader, reads = self.readers[n], writer.readers[n]
            m.d.comb += [
                reader.slot.eq(reads.slot),
                reader.dword.eq(reads.dword),
                reads.word.eq(reader.word),
                reader.free.eq(reads.free | registers.unused[n]),
            ]
        connect(m, wiring.flipped(self.malformed), other.malformed)
        connect(m, other.o, registers.reports[ErrorOrigin.OTHER.value])
        connect(m, registers.log, writer.i)
        connect(m, writer.done, registers.done)
        connect(m, writer.o, wiring.flipped(self.log))
        connect(m, messages.o, wiring.flipped(self.o))
        wiring.connect(m, registers.policy, policy.ask[0])
        if self._dpc:
            wiring.connect(m, wiring.flipped(self.policy), policy.ask[1])
        for part in (*paths, registers, messages):
            m.d.comb += [a.eq(b) for a, b in zip(part.states, self.states, strict=True)]
        for part in (*paths, registers, policy):
            m.d.comb += part.config.eq(self.config)
        for part in (*paths, registers):
            m.d.comb += [getattr(part.status, name).eq(getattr(self.status, name))
                         for name in ("function", "register", "ones", "reset")]
        m.d.comb += [
            self.status.value.eq(
                paths[0].status.value | paths[1].status.value | registers.status.value),
            other.internal.eq(self.internal),
            other.surprise.eq(self.surprise),
            other.outcome.eq(registers.other),
            other.written.eq(writer.other_done),
            writer.header.eq(self.malformed.p.header),
            writer.blank.eq(other.blank),
            registers.room.eq(writer.i.ready),
            messages.i.eq(registers.message),
            messages.announce.eq(self.announce),
            messages.upstream_id.eq(self.upstream_id),
            self.announced.eq(messages.announced),
            self.trigger.eq(registers.trigger),
            self.stat_unlogged.eq(registers.stat_unlogged),
            self.stat_unsent.eq(messages.stat_unsent),
        ]
        return m
