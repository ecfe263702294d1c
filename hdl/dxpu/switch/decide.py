"""Where a TLP goes: the pipeline around a lookup that the two directions have in common."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import LookupKind, LookupRequest, LookupResult
from dxpu.rows import LIFE_BITS
from dxpu.stream import ForwardRegister, Register, connect
from dxpu.switch.errors.types import ErrorKind
from dxpu.switch.tracking.types import request_kind
from dxpu.tlp.completion import completion_for
from dxpu.tlp.types import CompletionStatus, MessageCode, Routing, TlpClass

from .types import PortState, RouterInput, Target, Verdict, separate

__all__ = ["IGNORED", "Decider", "isa_hole"]

#: Local messages that a receiver drops without a word: 2.2.8.6 and 2.2.8.7.
IGNORED = (*(code.value for code in MessageCode if code.name.startswith("IGNORED")),
           MessageCode.VENDOR_DEFINED_1.value)


def isa_hole(address):
    """I/O addresses that a bridge with ISA Enable leaves to the other side of its I/O window.

    Ref: PCI-to-PCI Bridge 1.2, 3.2.5.18: the last 768 bytes of each KiB of the first 64 KiB.
    """
    return ~address[16:32].any() & address[8:10].any()


class Decider(wiring.Component):
    """Decides about TLPs, in order; the rules are in the subclasses.

    The stages: the TLP waits on ``i`` for the lookup; then the rules are applied to what was found.
    Latency 2 cycles plus that of the lookup; a verdict every cycle plus that of the lookup, or,
    unless ``wide``, every other cycle.

    Parameters
    ----------
    ports : int
        Downstream ports.
    wide : bool
        A TLP may have one beat only, and the next verdict follows at once.

    Members
    -------
    i : stream of :class:`RouterInput`
    early, keep : 1
        The payload of ``i`` is that of the next TLP, which may come, or not: its lookup begins. As
        long as ``keep`` is 1 the payload stays.
    o : stream of :class:`Verdict`
    lookup : stream of :class:`LookupRequest`
    result : stream of :class:`LookupResult`
        One for each request, in order.
    states : array of :class:`PortState`
    link_active : ``ports``
    lives : array of numbers
        Number of the current life of each slot: what is decided belongs to it.
    held : ``ports``
        A placeholder takes what is sent to the slot, whose link is not active otherwise.
    held_bus : array of numbers
        Bus numbers that the placeholders have captured.
    down : 1
        The link to the root complex is down: what is wrong with a TLP is nobody's error any more.
    refused : ``ports``
        Pulse: the placeholder of a slot does not take a TLP, of class ``refused_cls``.
    stat_unsupported, stat_unclaimed, stat_unexpected : 1
        Pulse: a non-posted request was answered because nobody takes it; a posted request or a
        message, a completion were dropped for that reason.
    """

    def __init__(self, ports, members, *, wide=True):
        self._ports, self._wide = ports, wide
        super().__init__({
            "i": In(stream.Signature(RouterInput)),
            "early": In(1),
            "keep": Out(1),
            "o": Out(stream.Signature(Verdict)),
            "lookup": Out(stream.Signature(LookupRequest)),
            "result": In(stream.Signature(LookupResult)),
            "states": In(PortState).array(ports + 1),
            "link_active": In(ports),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "held": In(ports),
            "held_bus": In(data.ArrayLayout(8, ports)),
            "down": In(1),
            "refused": Out(ports),
            "refused_cls": Out(TlpClass),
            "stat_unsupported": Out(1),
            "stat_unclaimed": Out(1),
            "stat_unexpected": Out(1),
        } | members)
        # The TLP that is looked up, and the one about which the rules are consulted.
        self._a = self.i.payload
        self._b = Signal(RouterInput, reset_less=True)
        self._hold = Signal()          #: no new lookups
        self._pause = Signal()         #: no verdict in this cycle
        self._pending = Signal()       #: ``b`` waits for its verdict to be taken
        self._decided = Signal()       #: the verdict leaves in this cycle
        self._verdict = separate(Verdict, "verdict")
        self._status = Signal(CompletionStatus, init=CompletionStatus.UR)
        self._who = Signal(16)         #: completer, should there be a completion
        self._where = Signal(6)        #: its function
        # What is known about the TLP in the second stage.
        self._hit, self._port = Signal(reset_less=True), Signal(5, reset_less=True)
        self._target = Signal(PortState, reset_less=True)   #: port that was hit
        self._active = Signal(reset_less=True)              #: its link
        self._life = Signal(LIFE_BITS, reset_less=True)     #: its life
        self._held = Signal(reset_less=True)                #: a placeholder stands there
        self._held_id = Signal(16, reset_less=True)         #: its identifier
        self._windowed = Signal(reset_less=True)  #: in a window of the upstream port
        self._internal = Signal(reset_less=True)  #: bus number of the bus inside
        self._inside = Signal(reset_less=True)    #: bus number below that bus

    def elaborate(self, platform):
        m = Module()
        b, b_valid, asked, asking = self._b, self._pending, Signal(), Signal()
        b_ready, move, come = Signal(), Signal(), Signal()

        m.submodules.out = out = (Register if self._wide else ForwardRegister)(Verdict)
        connect(m, out.o, wiring.flipped(self.o))
        m.d.comb += [
            come.eq(self.i.valid | self.early),
            self.lookup.valid.eq((come | asking) & ~asked & ~self._hold),
            self.keep.eq(self.lookup.valid | asked),
            # What was found about a TLP that does not come is of no use.
            self.result.ready.eq(self.i.valid & b_ready | ~come),
            move.eq(self.i.valid & b_ready & self.result.valid),
            self.i.ready.eq(move),
            # A TLP that has two beats needs no verdict in the cycle after one.
            b_ready.eq(~b_valid | (self._decided if self._wide else 0)),
            out.i.valid.eq(b_valid & ~self._pause),
            out.i.payload.eq(self._verdict),
            self._decided.eq(b_valid & out.i.ready & ~self._pause),
        ]
        m.d.sync += asking.eq(self.lookup.valid & ~self.lookup.ready)
        with m.If(self.lookup.valid & self.lookup.ready):
            m.d.sync += asked.eq(1)
        with m.Elif(self.result.valid & self.result.ready):
            m.d.sync += asked.eq(0)
        with m.If(self._decided):
            m.d.sync += b_valid.eq(0)
        with m.If(move):
            m.d.sync += [b_valid.eq(1), b.eq(self._a)]
            self._learn(m)

        self._ask(m)
        self._frame(m)
        self._rules(m)
        return m

    def _ask(self, m):
        info, p = self._a.info, self.lookup.p
        m.d.comb += [p.kind.eq(LookupKind.BUS), p.address.eq(info.address),
                     p.bus.eq(info.target_id[8:])]
        with m.If(info.is_memory | info.is_io):
            m.d.comb += p.kind.eq(Mux(info.is_io, LookupKind.IO, LookupKind.MEMORY))

    def _learn(self, m):
        """First stage: look at the TLP of ``a`` and the answer, and keep what the rules need."""
        info, up, found = self._a.info, self.states[0], self.result.p
        is_internal = info.target_id[8:] == up.secondary
        m.d.sync += [
            self._hit.eq(found.hit),
            self._port.eq(found.port),
            self._active.eq(self.link_active.bit_select(found.port, 1)),
            self._life.eq(Array(self.lives)[found.port]),
            self._held.eq(self.held.bit_select(found.port, 1)),
            self._held_id[8:].eq(Array(self.held_bus)[found.port]),
            self._windowed.eq(found.upstream & ~(info.is_io & up.isa & isa_hole(info.address))),
            self._internal.eq(found.upstream & is_internal),
            self._inside.eq(found.upstream & ~is_internal),
        ]
        self._select(m, self._target, found.port)

    def _select(self, m, state, port):
        """Register the state of downstream port ``port``."""
        with m.Switch(port):
            for n in range(self._ports):
                with m.Case(n):
                    m.d.sync += state.eq(self.states[n + 1])

    def _port_id(self, port):
        """Identifier of a downstream port: a device on the bus inside."""
        return Cat(C(0, 3), port[:5], self.states[0].secondary)

    def _frame(self, m):
        """What is in every verdict, and the counts of TLPs that nobody takes."""
        info, v = self._b.info, self._verdict
        splits, returns = request_kind(info)
        m.d.comb += [
            v.port.eq(self._port),
            v.life.eq(self._life),
            v.splits.eq(splits),
            v.returns.eq(returns),
            v.cls.eq(info.cls),
            v.prefix_dwords.eq(info.prefix_dwords),
            v.respond.eq(info.cls == TlpClass.NP),
            v.source.eq(self._b.port),
            v.register.eq(info.register),
            v.write.eq(info.is_write),
            v.enables.eq(info.first_be),
            v.code.eq(info.message_code),
            v.completion.eq(completion_for(info, self._status, self._who)),
        ]

    def _note(self, m, *, lost, refused, source, violation=0):
        """What there is to report of the TLP: it is lost (egress blocking, ACS) or poisoned."""
        info, v, note = self._b.info, self._verdict, self._verdict.note
        poisoned, loses = Signal(), Signal()
        completion, request = info.cls == TlpClass.CPL, info.cls == TlpClass.NP
        atomic = info.is_atomic & refused.block_atomics
        blocked = atomic | self._b.end_prefix & refused.block_prefixes
        m.d.comb += [
            poisoned.eq(info.ep & info.fmt[1]),
            loses.eq(lost & (v.target == Target.NOWHERE)),
            note.exists.eq((loses | poisoned | note.abort.any()) & ~self.down),
            note.reporter.eq(Mux(loses, self._where, source)),
            note.advisory.eq(~loses | ~poisoned & (request | completion & ~blocked)),
            note.source.eq(source),
            note.target.eq(Mux(v.target == Target.SLOT, v.port + 1, 0)),
            note.crossed.eq((v.target == Target.SLOT) | (v.target == Target.UPSTREAM)),
            note.sent.eq(1),
            note.poisoned.eq(poisoned),
            note.completion.eq(completion),
            # Reserved codes count as UR (2.2.9).
            note.abort.eq(Cat(~info.status.matches(0, 2, 4), info.status == 4)
                          & completion.replicate(2)),
        ]
        with m.If(loses):
            m.d.comb += note.kind.eq(Mux(
                violation, ErrorKind.ACS, Mux(atomic, ErrorKind.ATOMIC_BLOCKED, Mux(
                    blocked, ErrorKind.PREFIX_BLOCKED, Mux(
                        completion, ErrorKind.UNEXPECTED, ErrorKind.UNSUPPORTED)))))
        with m.Elif(poisoned):
            m.d.comb += note.kind.eq(ErrorKind.POISONED)

    def _count(self, m, condition):
        """Count a TLP that nobody takes, under ``condition``."""
        nowhere = self._decided & (self._verdict.target == Target.NOWHERE) & condition
        cls = self._b.info.cls
        m.d.comb += [
            self.stat_unsupported.eq(nowhere & (cls == TlpClass.NP)),
            self.stat_unclaimed.eq(nowhere & (cls == TlpClass.P)),
            self.stat_unexpected.eq(nowhere & (cls == TlpClass.CPL)),
        ]

    def _is_address(self):
        """Memory, I/O or AtomicOp request."""
        return self._b.info.is_memory | self._b.info.is_io

    def _claimed(self):
        """The downstream port that was hit takes memory and I/O requests, and this one."""
        info, target = self._b.info, self._target
        return (self._hit & (target.power == 0)
                & ~(info.is_io & target.isa & isa_hole(info.address)))

    def _refused(self, state):
        """The port with ``state`` does not let this TLP out."""
        return (self._b.end_prefix & state.block_prefixes
                | self._b.info.is_atomic & state.block_atomics)

    def _lonely(self, target):
        """What the port with state ``target`` sends to its slot meets no link, or a placeholder."""
        return ~self._active & ~(self._held & self._refused(target))

    def _to_held(self, m, sent):
        """What is ``sent`` to a slot comes to its placeholder, which refuses most of it."""
        info, came = self._b.info, Signal()
        ignored = info.is_message & (info.message_code == MessageCode.VENDOR_DEFINED_1)
        m.d.comb += [
            came.eq(sent & self._held & ~self._refused(self._target)),
            self.refused_cls.eq(info.cls),
        ]
        with m.If(came):
            m.d.comb += self._who.eq(self._held_id)
            with m.If(self._decided & (self._verdict.target == Target.NOWHERE) & ~ignored):
                m.d.comb += self.refused.eq(1 << self._port)
        return came

    def _routed(self, *routes):
        routing = self._b.info.routing
        return Cat(routing == Routing(r) for r in routes).any()
