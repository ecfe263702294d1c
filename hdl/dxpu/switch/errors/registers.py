"""Device Status and AER of all ports: what an error does there, and what follows from it.

Ref: PCIe Base 5.0, 6.2.3.2.4, 6.2.4.2, 6.2.5 (Figure 6-2), 6.2.10, 7.8.4
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.priority import one_hot_mux
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.switch.types import PortState
from dxpu.tlp.types import MessageCode

from .types import (
    HEADERS_KEPT, ContainmentTrigger, ErrorKind, ErrorOrigin, ErrorReport, PolicyPort,
    StatusRegisters, TriggerReason,
)

__all__ = ["ErrorMessage", "ErrorPolicy", "ErrorRegisters", "KINDS", "OtherOutcome"]

#: Signaled System Error and Received System Error in their dwords.
_SYSTEM = 30
#: Registers of which software clears bits that are kept here.
_CLEARED = ("Status", "Device Status", "Uncorrectable Error Status", "Correctable Error Status")

#: The errors that there are, in the order of their bits.
KINDS = tuple(kind for kind in ErrorKind if kind is not ErrorKind.NONE)


def _kind_bits(dword):
    """The bits of the errors in a dword of AER."""
    return Cat(dword[kind.value] for kind in KINDS)


def _one_hot(kind):
    return Cat(kind == each for each in KINDS)


class ErrorPolicy(wiring.Component):
    """Masks and severities of AER, in LUT RAM. Follows ``config`` by one cycle.

    Parameters
    ----------
    ports : int
        Downstream ports.
    readers : int
        Who asks.

    Members
    -------
    config : :class:`~dxpu.mapping.ConfigUpdate`
    ask : array of :class:`~.types.PolicyPort`
    """

    def __init__(self, ports, *, readers):
        self._ports, self._readers = ports, readers
        super().__init__({
            "config": In(ConfigUpdate),
            "ask": In(PolicyPort()).array(readers),
        })

    def elaborate(self, platform):
        m = Module()
        fmap, config = function_map(DOWNSTREAM), self.config
        advisory = fmap.bit("Correctable Error Mask", "Advisory Non-Fatal Error")
        for name, register, value in (
                ("masked", "Uncorrectable Error Mask", _kind_bits(config.value)),
                ("fatal", "Uncorrectable Error Severity", _kind_bits(config.value)),
                ("muted", "Correctable Error Mask", config.value[advisory])):
            m.submodules[name] = memory = Memory(
                shape=len(value), depth=self._ports + 1, init=[])
            write = memory.write_port()
            m.d.comb += [
                write.addr.eq(config.function),
                write.data.eq(value),
                write.en.eq(config.strobe & (config.register == fmap.dword(register))),
            ]
            for ask in self.ask:
                read = memory.read_port(domain="comb")
                m.d.comb += [
                    read.addr.eq(ask.function),
                    getattr(ask, name).eq(
                        (read.data & (1 if name == "muted" else _one_hot(ask.kind))).any()),
                ]
        return m


class ErrorMessage(data.Struct):
    """A port is to send an error message."""

    strobe: 1
    function: 6
    code: MessageCode


class OtherOutcome(data.Struct):
    """What became of an error whose header is not kept with the TLPs of a direction."""

    strobe: 1
    logged: 1  #: its header goes into the log


class _Word(data.Struct):
    """What is kept of a port."""

    status: len(KINDS)   #: Uncorrectable Error Status
    first: len(KINDS)    #: the error whose header is in the log; 0 if the log is free
    writing: 1           #: the log is being written; ``first`` is 0 if software has cleared that
    prefixes: 1          #: TLP Prefix Log Present
    device: 4            #: Device Status
    advisory: 1          #: Advisory Non-Fatal Error in Correctable Error Status
    system: 1            #: Signaled System Error for an error of the port itself


class ErrorRegisters(wiring.Component):
    """Carries out what an error does to the registers of the port that reports it.

    As Figure 6-2 says: the severity decides; a non-fatal error that is advisory is signalled as a
    correctable one; Device Status; unless it is masked as advisory, the status bit; unless masked,
    First Error Pointer and Header Log if they are free; the message, if enabled. That of a
    downstream port passes the upstream port as one from a slot would.

    The log of a port is taken by an unmasked error, and is free again when software clears the
    status bit of that error: a masked error that sets the bit again takes nothing. First Error
    Pointer reads 0, which points to no error, until the log is whole, and when it is free.

    With Downstream Port Containment an unmasked error that would be signalled as ERR_FATAL, or if
    enabled as ERR_NONFATAL, is not signalled. Those of a slot's own TLPs trigger where they are
    decided about, a lost link where it is found; the others here.

    One error in a cycle; those of TLPs from the host first, then those from slots. An error shows
    three cycles after it was taken, four with one register access by software meanwhile.

    Parameters
    ----------
    ports : int
        Downstream ports.
    dpc : bool
        They have Downstream Port Containment.

    Members
    -------
    reports : array of 3 streams of :class:`~.types.ErrorReport`
        In the order of :class:`~.types.ErrorOrigin`.
    policy : :class:`~.types.PolicyPort`
    states : array of :class:`PortState`
    config : :class:`~dxpu.mapping.ConfigUpdate`
    status : :class:`~.types.StatusRegisters`
    log : stream of :class:`~.types.ErrorReport`
        The header of this error goes into the log of its port. It must be taken at once, while
        there is ``room``.
    room : 1
    unused : array of 2 sets of strobes
        Slots of the two directions whose header goes nowhere.
    other : :class:`OtherOutcome`
    done : stream of 6 bits
        The log of that function is whole.
    message : :class:`ErrorMessage`
    trigger : :class:`~.types.ContainmentTrigger`
    stat_unlogged : 1
        Pulse: an uncorrectable error that is not masked, but whose header is not in the log, as it
        holds that of an earlier error, or as there was no room for the header.
    """

    def __init__(self, ports, *, dpc=False):
        self._ports, self._dpc = ports, dpc
        super().__init__({
            "reports": In(stream.Signature(ErrorReport)).array(len(ErrorOrigin)),
            "policy": Out(PolicyPort()),
            "states": In(PortState).array(ports + 1),
            "config": In(ConfigUpdate),
            "status": In(StatusRegisters()),
            "log": Out(stream.Signature(ErrorReport)),
            "room": In(1),
            "unused": Out(data.ArrayLayout(HEADERS_KEPT, 2)),
            "other": Out(OtherOutcome),
            "done": In(stream.Signature(6)),
            "message": Out(ErrorMessage),
            "trigger": Out(ContainmentTrigger),
            "stat_unlogged": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        fmap = function_map(DOWNSTREAM)
        taken, judged = (Signal(ErrorReport, name=n, reset_less=True) for n in ("taken", "judged"))
        taken_valid, judged_valid, clears, flows = Signal(), Signal(), Signal(), Signal()
        fatal, masked, muted = Signal(), Signal(), Signal()
        state = Signal(PortState, reset_less=True)

        # One report of several; then what software wants done with it.
        host, slot, other = self.reports
        m.d.comb += [
            flows.eq(~judged_valid | ~clears),
            host.ready.eq(flows),
            slot.ready.eq(flows & ~host.valid),
            other.ready.eq(flows & ~host.valid & ~slot.valid),
            self.policy.function.eq(taken.function),
            self.policy.kind.eq(taken.kind),
        ]
        with m.If(flows):
            m.d.sync += [
                taken_valid.eq(host.valid | slot.valid | other.valid),
                taken.eq(Mux(host.valid, host.payload,
                             Mux(slot.valid, slot.payload, other.payload))),
                judged_valid.eq(taken_valid), judged.eq(taken),
                fatal.eq(self.policy.fatal), masked.eq(self.policy.masked),
                muted.eq(self.policy.muted),
            ]
            with m.Switch(taken.function):
                for n in range(self._ports + 1):
                    with m.Case(n):
                        m.d.sync += state.eq(self.states[n])

        # What the error is, and what it does.
        kind, up, own = Signal(len(KINDS)), self.states[0], Signal()
        advisory, severe, heard, unmasked = Signal(), Signal(), Signal(), Signal()
        triggers, enabled, passes, acts = Signal(), Signal(), Signal(), Signal()
        unsupported = judged.kind == ErrorKind.UNSUPPORTED
        silent = unsupported & ~state.unsupported
        m.d.comb += [
            kind.eq(_one_hot(judged.kind)),
            own.eq(judged.function == 0),
            acts.eq(judged_valid & ~clears),
            advisory.eq(judged.advisory & ~fatal),
            severe.eq(~advisory),
            heard.eq(~(advisory & muted)),
            unmasked.eq(heard & ~masked),
            triggers.eq(severe & ~masked & ((state.trigger == 2) | (state.trigger == 1) & fatal)
                        if self._dpc else 0),
            # SERR# Enable of Command lets an Unsupported Request out by itself.
            enabled.eq(heard & ~(masked & severe) & ~triggers & Mux(
                severe, state.serr | Mux(fatal, state.fatal, state.nonfatal) & ~silent,
                state.correctable & ~silent)),
            passes.eq(own | up.forward_errors & (
                advisory | up.serr | Mux(fatal, up.fatal, up.nonfatal))),
        ]
        m.d.sync += [
            self.message.strobe.eq(acts & enabled & passes),
            self.message.function.eq(judged.function),
            self.message.code.eq(Mux(advisory, MessageCode.ERR_COR, Mux(
                fatal, MessageCode.ERR_FATAL, MessageCode.ERR_NONFATAL))),
            self.trigger.strobe.eq(acts & triggers & ~own & (
                (judged.origin == ErrorOrigin.HOST) | (judged.kind == ErrorKind.INTERNAL)
                | (judged.kind == ErrorKind.MALFORMED))),
            self.trigger.port.eq(judged.function - 1),
            self.trigger.reason.eq(TriggerReason.ERROR),
        ]

        # The registers: software first, then errors, then logs that have become whole.
        m.submodules.words = words = Memory(shape=_Word, depth=self._ports + 1, init=[])
        write = words.write_port()
        read, seen = words.read_port(domain="comb"), words.read_port(domain="comb")
        word, ones, resets = Signal(_Word), Signal(32), Signal()
        loads, free = Signal(), Signal()
        # What software writes is decoded in the cycle before: much waits for it.
        written, function = Signal(len(_CLEARED)), Signal(6)
        m.d.sync += [
            written.eq(Cat(self.config.strobe & (self.config.register == fmap.dword(name))
                           for name in _CLEARED)),
            function.eq(self.config.function),
            ones.eq(self.status.ones | self.status.reset.replicate(32)),
            resets.eq(self.status.reset),
        ]
        m.d.comb += [
            clears.eq(written.any()),
            read.addr.eq(Mux(clears, function,
                             Mux(judged_valid, judged.function, self.done.payload))),
            write.addr.eq(read.addr),
            write.data.eq(word),
            write.en.eq(clears | judged_valid | self.done.valid),
            word.eq(read.data),
            self.done.ready.eq(~clears & ~judged_valid),
            free.eq(~read.data.first.any() & ~read.data.writing),
            loads.eq(unmasked & free & judged.kept & self.room),
        ]
        with m.If(clears):
            self._clear(m, fmap, written, ones, resets, read.data, word)
        with m.Elif(judged_valid):
            m.d.comb += [
                word.eq(read.data),
                word.device.eq(read.data.device | Cat(
                    advisory, severe & ~fatal, severe & fatal, unsupported)),
                word.advisory.eq(read.data.advisory | advisory),
                word.system.eq(read.data.system | enabled & severe & state.serr),
            ]
            with m.If(heard):
                m.d.comb += word.status.eq(read.data.status | kind)
            with m.If(loads):
                m.d.comb += [word.first.eq(kind), word.writing.eq(1),
                             word.prefixes.eq(judged.prefix_dwords.any())]
        with m.Else():
            m.d.comb += [word.eq(read.data), word.writing.eq(0)]

        m.d.comb += [
            self.log.payload.eq(judged),
            self.log.valid.eq(acts & loads),
            self.other.strobe.eq(acts & (judged.origin == ErrorOrigin.OTHER)),
            self.other.logged.eq(loads),
            self.stat_unlogged.eq(acts & unmasked & ~loads),
            *(unused.eq(Mux(acts & ~loads & judged.kept & (judged.origin == origin),
                            1 << judged.slot, 0))
              for unused, origin in zip(self.unused, (ErrorOrigin.HOST, ErrorOrigin.SLOT),
                                        strict=True)),
        ]
        bridge = self._bridge(m, fmap, acts & enabled & severe & ~own, passes & up.serr)
        m.d.comb += seen.addr.eq(self.status.function)
        self._show(m, fmap, seen.data, bridge)
        return m

    def _clear(self, m, fmap, written, ones, resets, old, word):
        """What a write of ones, or a reset, does to the word of a port."""
        advice = fmap.bit("Correctable Error Status", "Advisory Non-Fatal Error")
        system, device, uncorrectable, correctable = written
        m.d.comb += word.eq(old)
        with m.If(system):
            m.d.comb += word.system.eq(old.system & ~ones[_SYSTEM])
        with m.If(device):
            m.d.comb += word.device.eq(old.device & ~ones[16:20])
        with m.If(uncorrectable):
            m.d.comb += [
                word.status.eq(old.status & ~_kind_bits(ones)),
                word.first.eq(old.first & ~_kind_bits(ones)),
                word.writing.eq(old.writing & ~resets),
            ]
        with m.If(correctable):
            m.d.comb += word.advisory.eq(old.advisory & ~ones[advice])

    def _bridge(self, m, fmap, comes, leaves):
        """What the upstream port notes of messages of the ports below: Received System Error, and
        Signaled System Error if they leave."""
        received, signaled = Signal(), Signal()
        ones = self.status.ones | self.status.reset.replicate(32)
        for bit, register, sets in ((received, "Secondary Status", comes),
                                    (signaled, "Status", comes & leaves)):
            clear = (self.config.strobe & (self.config.function == 0) & ones[_SYSTEM]
                     & (self.config.register == fmap.dword(register)))
            m.d.sync += bit.eq(bit & ~clear | sets)
        return received, signaled

    def _show(self, m, fmap, word, bridge):
        """What software reads."""
        value, upstream = self.status.value, self.status.function == 0
        control = "Advanced Error Capabilities and Control"
        advice = fmap.bit("Correctable Error Status", "Advisory Non-Fatal Error")
        pointer = Signal(5)
        with m.If(~word.writing):
            m.d.comb += pointer.eq(one_hot_mux(word.first, [C(k.value, 5) for k in KINDS]))
        with m.Switch(self.status.register):
            with m.Case(fmap.dword("Status")):
                m.d.comb += value[_SYSTEM].eq(word.system | upstream & bridge[1])
            with m.Case(fmap.dword("Secondary Status")):
                m.d.comb += value[_SYSTEM].eq(upstream & bridge[0])
            with m.Case(fmap.dword("Device Status")):
                m.d.comb += value[16:20].eq(word.device)
            with m.Case(fmap.dword("Uncorrectable Error Status")):
                m.d.comb += [value[k.value].eq(bit)
                             for k, bit in zip(KINDS, word.status, strict=True)]
            with m.Case(fmap.dword("Correctable Error Status")):
                m.d.comb += value[advice].eq(word.advisory)
            with m.Case(fmap.dword(control)):
                m.d.comb += [
                    value[:5].eq(pointer),
                    value[fmap.bit(control, "TLP Prefix Log Present")].eq(
                        word.prefixes & pointer.any()),
                ]
