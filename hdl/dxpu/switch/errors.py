"""Errors that the ports find in TLPs: status bits, advanced error reporting, error messages.

Ref: PCIe Base 5.0, 6.2 (error signalling), 7.5.1 and 7.5.3 (status bits), 7.8.4 (AER), 7.9.15
(DPC).
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import first_one
from dxpu.tlp.types import MessageCode, Routing, swap_bytes

from .config_map import DOWNSTREAM, function_map
from .error_types import Containment, ErrorKind, ErrorRecord, MalformedTlp
from .messages import MessageRequest
from .types import ConfigEvent, PortState

__all__ = ["ErrorLogger", "ErrorQueue"]


class ErrorQueue(wiring.Component):
    """One stream of error records out of those of both directions and of errors without a TLP.

    Records of TLPs go first. An error without a TLP is remembered, once for each port, until it
    can go.

    Parameters
    ----------
    ports : int
        Downstream ports.
    dpc : bool
        They have Downstream Port Containment. Without, ``surprise`` and ``triggered`` are ignored.

    Members
    -------
    i : array of 2 streams of :class:`ErrorRecord`
    internal : ``ports``
        Pulse: an uncorrectable internal error of the port.
    surprise : ``ports``
        Pulse: the port has lost its link by surprise.
    triggered : ``ports``
        Pulse: software has triggered containment.
    malformed : stream of :class:`MalformedTlp`
    o : stream of :class:`ErrorRecord`
    busy : 1
        There is something.
    """

    def __init__(self, ports, *, dpc=False):
        self._ports, self._dpc = ports, dpc
        super().__init__({
            "i": In(stream.Signature(ErrorRecord)).array(2),
            "internal": In(ports),
            "surprise": In(ports),
            "triggered": In(ports),
            "malformed": In(stream.Signature(MalformedTlp)),
            "o": Out(stream.Signature(ErrorRecord)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        # Errors without a TLP: their pulses, and what they are; the last ones go first.
        causes = [(self.internal, ErrorKind.INTERNAL, Containment.NONE)]
        if self._dpc:
            causes += [(self.surprise, ErrorKind.SURPRISE_DOWN, Containment.NONE),
                       (self.triggered, ErrorKind.NONE, Containment.SOFTWARE)]
        waiting, serve = ([Signal(self._ports, name=f"{name}{n}") for n in range(len(causes))]
                          for name in ("waiting", "serve"))
        which = C(0)
        for n, mine in enumerate(waiting):
            m.d.sync += mine.eq(mine & ~serve[n] | causes[n][0])
            which = Mux(mine.any(), n, which) if n else which
        some = Cat(waiting).any()
        # Whose turn it is stays while the record is looked at.
        turn, pick = Signal(range(3 + len(causes))), Signal(range(3 + len(causes)))
        held = Signal()
        malformed = self.malformed
        choice = Mux(self.i[0].valid, 0, Mux(self.i[1].valid, 1, Mux(
            malformed.valid, 2, 3 + which)))
        port, chosen = Signal(range(self._ports)), Signal(range(self._ports))
        m.d.comb += [
            pick.eq(Mux(held, turn, choice)),
            chosen.eq(Mux(held, port, first_one(Array(waiting)[which]))),
            self.o.valid.eq(self.i[0].valid | self.i[1].valid | malformed.valid | some),
            self.busy.eq(self.o.valid),
        ]
        m.d.sync += [held.eq(self.o.valid & ~self.o.ready), turn.eq(pick), port.eq(chosen)]
        with m.Switch(pick):
            for n, source in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        self.o.payload.eq(source.payload),
                        source.ready.eq(self.o.ready),
                    ]
            with m.Case(2):
                m.d.comb += [
                    self.o.p.note.kind.eq(ErrorKind.MALFORMED),
                    self.o.p.note.reporter.eq(malformed.p.function),
                    self.o.p.header.eq(malformed.p.header),
                    malformed.ready.eq(self.o.ready),
                ]
            for n, (_, kind, contain) in enumerate(causes):
                with m.Case(3 + n):
                    m.d.comb += [
                        self.o.p.note.kind.eq(kind),
                        self.o.p.note.contain.eq(contain),
                        self.o.p.note.reporter.eq(chosen + 1),
                        serve[n].eq((self.o.ready & self.o.valid) << chosen),
                    ]
        return m


class ErrorLogger(wiring.Component):
    """Carries out what an error does to the configuration spaces, and sends its message.

    First the status bits of the bridges on the way of the TLP: Detected Parity Error, Master Data
    Parity Error, Received Target and Master Abort, Received System Error. Then the reporting port's
    own part, as Figure 6-2 says: the severity decides; a non-fatal error that is advisory is
    signalled as a correctable one; Device Status; unless masked, the status bit; First Error
    Pointer and Header Log if they are not occupied; the message, if enabled. That of a downstream
    port passes the upstream port as one from a slot would.

    With Downstream Port Containment an error that would be signalled as ERR_FATAL, or if enabled as
    ERR_NONFATAL, sets DPC Status instead, unless the port is contained already; so does a record of
    a message that was discarded for it. Then ERR_COR is sent if DPC asks for it, and after that DPC
    Interrupt Status is set, if enabled.

    One record at a time, an access to a configuration space in each step: 23 cycles for an advisory
    error that is masked, 66 for one that a downstream port logs and signals.

    Ref: PCIe Base 5.0, 6.2.3.2.4, 6.2.4, 6.2.5, 6.2.6, 6.2.10, 7.5.1.1.4, 7.5.1.3.7, 7.8.4

    Parameters
    ----------
    ports : int
        Downstream ports.
    identity : Identity, optional
        What registers there are.

    Members
    -------
    i : stream of :class:`ErrorRecord`
        Taken when all is done, message included.
    states : array of :class:`PortState`
    upstream_id : 13
        Bus and device number of the upstream port.
    event : stream of :class:`ConfigEvent`
    old : 32
        Register of the last event before it.
    done : 1
        Pulse: the event took effect.
    settled : ``ports``
        Strobe: a record of the port that may have contained it has been worked off.
    o : stream of :class:`MessageRequest`
    """

    def __init__(self, ports, *, identity=None):
        self._ports = ports
        self._map = function_map(DOWNSTREAM, identity)  # the upstream port has the same of AER
        self._dpc = "DPC Status" in self._map.by_name
        super().__init__({
            "i": In(stream.Signature(ErrorRecord)),
            "states": In(PortState).array(ports + 1),
            "upstream_id": In(13),
            "event": Out(stream.Signature(ConfigEvent)),
            "old": In(32),
            "done": In(1),
            "settled": Out(ports),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        self._note = note = self.i.p.note
        self._issued = Signal()
        self._function = Signal(6)         #: whose registers are accessed
        self._state = Signal(PortState)    #: of that function,
        self._fresh = Signal()             #: if this is set
        before = Signal.like(self._function)
        with m.Switch(self._function):
            for n in range(self._ports + 1):
                with m.Case(n):
                    m.d.sync += self._state.eq(self.states[n])
        m.d.sync += before.eq(self._function)
        m.d.comb += [self._fresh.eq(before == self._function),
                     self.event.p.function.eq(self._function)]

        # What is found out about the error: its severity, and so its message.
        self._fatal, self._advisory = Signal(), Signal()
        self._code, self._severe = Signal(MessageCode), Signal()
        self._unsupported = Signal()
        self._reason, self._announces = Signal(2), Signal()  # with containment
        m.d.comb += [
            self._code.eq(Mux(self._fatal, MessageCode.ERR_FATAL, Mux(
                self._advisory, MessageCode.ERR_COR, MessageCode.ERR_NONFATAL))),
            self._severe.eq(~self._advisory),
            self._unsupported.eq(note.kind == ErrorKind.UNSUPPORTED),
        ]
        self._status_bit = Signal(32)
        with m.Switch(note.kind):
            for kind in ErrorKind:
                with m.Case(kind):
                    m.d.comb += self._status_bit.eq(1 << kind.value)
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += before.eq(63)  # no function
                with m.If(self.i.valid):
                    m.next = "SourcePrimary"
            self._path(m)
            self._classify(m)
            self._log(m)
            self._signal(m)
            if self._dpc:
                self._contain(m)
            else:
                with m.State("End"):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "Idle"
        return m

    def _classify(self, m):
        """Severity, Device Status; what is advisory may end here."""
        note, hit = self._note, self.old.bit_select(self._note.kind, 1)
        advice = "Advisory Non-Fatal Error"
        with m.State("Severity"):
            self._access(m, note.reporter, "Uncorrectable Error Severity", 0, "Device")
            with m.If(self.done):
                m.d.sync += [
                    self._fatal.eq(hit),
                    self._advisory.eq(note.advisory & ~hit),
                ]
        with m.State("Device"):
            found = Cat(self._advisory, ~(self._advisory | self._fatal), self._fatal,
                        self._unsupported)
            self._access(m, note.reporter, "Device Status", found << 16, "Advice")
        with m.State("Advice"):
            with m.If(self._advisory):
                self._access(m, note.reporter, "Correctable Error Status",
                             1 << self._bit("Correctable Error Status", advice), "AdviceMask")
            with m.Else():
                m.next = "Mask"
        with m.State("AdviceMask"):
            self._access(m, note.reporter, "Correctable Error Mask", 0, "Mask")
            with m.If(self.done & self.old[self._bit("Correctable Error Mask", advice)]):
                m.next = "End"

    def _log(self, m):
        """The status bit; unless masked or occupied, First Error Pointer and Header Log."""
        note, control = self._note, "Advanced Error Capabilities and Control"
        word = Signal(range(4))
        masked, status = Signal(), Signal(32, reset_less=True)
        header = self.i.p.header
        words = Array(swap_bytes(w) for w in (
            *header[:3], header[3] & header[0][5].replicate(32)))  # 0 if there are three
        with m.State("Mask"):
            self._access(m, note.reporter, "Uncorrectable Error Mask", 0, "Status")
            with m.If(self.done):
                m.d.sync += masked.eq(self.old.bit_select(note.kind, 1))
        judged = "Judge" if self._dpc else "Signal"
        with m.State("Status"):
            self._access(m, note.reporter, "Uncorrectable Error Status",
                         self._status_bit, "Pointer")
            with m.If(self.done):
                m.d.sync += status.eq(self.old)
                with m.If(masked):
                    m.next = "End"
                    with m.If(self._advisory):
                        m.next = "Signal"
        with m.State("Pointer"):
            # Occupied while the error that it points to is still set.
            self._access(m, note.reporter, control, 0, judged)
            with m.If(self.done & ~status.bit_select(self.old[:5], 1)):
                m.next = "SetPointer"
        with m.State("SetPointer"):
            self._access(m, note.reporter, control, note.kind, "Header", write=1)
        with m.State("Header"):
            self._access(m, note.reporter, "Header Log 0", words[word], "Header", write=1,
                         offset=word)
            with m.If(self.done):
                m.d.sync += word.eq(word + 1)
                with m.If(word == 3):
                    m.next = judged

    def _bit(self, register, name):
        return self._map.bit(register, name)

    def _access(self, m, function, register, bits, following, *, write=0, offset=0, skip=None):
        """An event, and then state ``following``; only that if ``skip``."""
        m.d.comb += [
            self._function.eq(function),
            self.event.p.register.eq(self._map.dword(register) + offset),
            self.event.p.set.eq(bits),
            self.event.p.write.eq(write),
            self.event.valid.eq(self._fresh & ~self._issued),
        ]
        with m.If(self.event.valid & self.event.ready):
            m.d.sync += self._issued.eq(1)
        with m.If(self.done):
            m.d.sync += self._issued.eq(0)
            m.next = following
        if skip is not None:
            with m.If(self._fresh & ~self._issued & skip):
                m.d.comb += self.event.valid.eq(0)
                m.next = following

    def _path(self, m):
        """Status bits of the bridges: the one it comes in at, and the one it leaves by.

        A bridge receives on one side and sends on the other. Primary status bits are about the
        upper side, those of Secondary Status about the lower one.
        """
        note = self._note
        crossed = note.crossed
        for name, function, enters_above, there, following in (
                ("Source", note.source, note.source == 0, C(1), "TargetPrimary"),
                ("Target", note.target, note.target != 0, crossed, "Severity")):
            leaves = crossed if name == "Source" else ~note.message.any() | note.sent
            severe = note.message.any()
            for side, register, enters, parity in (
                    ("Primary", "Status", enters_above, self._state.parity),
                    ("Secondary", "Secondary Status", ~enters_above, self._state.parity_below)):
                # A message that the upstream port stops is no TLP of the bus above.
                whole = ~severe | note.sent
                poisoned = note.poisoned & parity & (C(1) if name == "Source" else whole)
                aborted = note.aborted if name == "Source" else C(0)
                received = Cat(poisoned & note.completion, C(0, 2), aborted,
                               note.abort[1], note.abort[0], C(0, 1),
                               note.poisoned & (C(1) if name == "Source" else whole))
                sent = poisoned & ~note.completion & crossed & whole
                # Error messages: received below, signalled above.
                system = (severe if side == "Secondary" else
                          severe & leaves & self._state.serr)
                bits = Signal(32, name=f"{name}{side}")
                m.d.comb += bits[24:].eq(Mux(enters, received, sent) | system << 6)
                after = f"{name}Secondary" if side == "Primary" else following
                with m.State(f"{name}{side}"):
                    self._access(m, function, register, bits, after, skip=~bits.any() | ~there)
                    if after == "Severity":
                        with m.If((self.done | self._fresh & ~self._issued & (~bits.any() | ~there))
                                  & (note.kind == ErrorKind.NONE)):
                            m.next = "End"

    def _signal(self, m):
        """Whether the message is sent; what the upstream port adds if it is not its own."""
        note, state = self._note, self._state
        enabled, own = Signal(), note.reporter == 0
        silent = self._unsupported & ~state.unsupported
        severe_enable = state.serr | Mux(self._fatal, state.fatal, state.nonfatal)
        m.d.comb += enabled.eq(Mux(
            self._severe, severe_enable & (~silent | state.serr), state.correctable & ~silent))
        signalled = 1 << self._bit("Status", "Signaled System Error")
        received = 1 << self._bit("Secondary Status", "Received System Error")
        with m.State("Signal"):
            self._access(m, note.reporter, "Status", signalled, "Above",
                         skip=~(enabled & self._severe & state.serr))
            with m.If(self._fresh & ~self._issued & ~enabled):
                m.next = "End"
            with m.Elif(own & (self.done | self._fresh & ~self._issued
                               & ~(self._severe & state.serr))):
                m.next = "Send"
        with m.State("Above"):
            self._access(m, 0, "Secondary Status", received, "Pass", skip=~self._severe)
        with m.State("Pass"):
            passes = state.forward_errors & (~self._severe | severe_enable)
            self._access(m, 0, "Status", signalled, "Send",
                         skip=~(passes & self._severe & state.serr))
            with m.If(self._fresh & ~self._issued & ~passes):
                m.next = "End"
        with m.State("Send"):
            m.d.comb += self.o.valid.eq(1)
            with m.If(self.o.ready):
                m.next = "End"
        m.d.comb += [
            self.o.p.code.eq(Mux(self._announces, MessageCode.ERR_COR, self._code)
                             if self._dpc else self._code),
            self.o.p.routing.eq(Routing.TO_ROOT),
            self.o.p.requester_id.eq(Mux(own, Cat(C(0, 3), self.upstream_id), Cat(
                C(0, 3), (note.reporter - 1)[:5], self.states[0].secondary))),
        ]

    def _contain(self, m):
        """Downstream Port Containment: what triggers it, and how that is told (6.2.10)."""
        note, state, header = self._note, self._state, self.i.p.header
        mine, handled = Signal(), Signal()
        message = note.contain == Containment.MESSAGE
        m.d.comb += mine.eq(self._fresh & ~self._issued)
        with m.State("Judge"):
            # Advisory errors are handled as correctable ones, and contain nothing.
            m.d.comb += self._function.eq(note.reporter)
            with m.If(mine):
                m.next = "Signal"
                with m.If(~self._advisory & ~state.contained & (
                        (state.trigger == 2) | (state.trigger == 1) & self._fatal)):
                    m.d.sync += self._reason.eq(0)
                    m.next = "Trigger"
        with m.State("End"):
            with m.If((note.contain != Containment.NONE) & ~handled):
                m.d.comb += self._function.eq(note.reporter)
                with m.If(mine):
                    m.d.sync += [handled.eq(1), self._reason.eq(Mux(note.message[1], 2, 1))]
                    with m.If(~message):
                        m.next = "Announce"
                    with m.Elif(~state.contained):
                        m.next = "Trigger"
            with m.Else():
                m.d.sync += handled.eq(0)
                m.d.comb += [
                    self.i.ready.eq(1),
                    self.settled.eq((message | (note.kind == ErrorKind.SURPRISE_DOWN))
                                    << (note.reporter - 1)[:5]),
                ]
                m.next = "Idle"
        with m.State("Trigger"):
            requester = swap_bytes(header[1])[16:]
            self._access(m, note.reporter, "DPC Status", self._map.pack("DPC Status", {
                "DPC Trigger Status": 1, "DPC Trigger Reason": self._reason,
                "DPC Interrupt Status": state.dpc_event,
            }) | Mux(self._reason.any(), requester, 0) << 16, "Announce", write=1)
        with m.State("Announce"):
            m.d.comb += self._function.eq(note.reporter)
            with m.If(mine):
                m.next = "Interrupt"
                with m.If(state.dpc_correctable & state.correctable):
                    m.next = "AnnounceAbove"
        with m.State("AnnounceAbove"):
            with m.If(mine):
                m.next = "Interrupt"
                with m.If(state.forward_errors):
                    m.next = "AnnounceSend"
        with m.State("AnnounceSend"):
            m.d.comb += [self.o.valid.eq(1), self._announces.eq(1)]
            with m.If(self.o.ready):
                m.next = "Interrupt"
        with m.State("Interrupt"):
            # After the message has gone, as an MSI must not overtake it (6.2.10.2).
            self._access(m, note.reporter, "DPC Status",
                         1 << self._bit("DPC Status", "DPC Interrupt Status"), "End",
                         skip=~state.dpc_interrupt)
