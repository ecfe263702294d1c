"""Decisions about TLPs that come from slots."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from dxpu.rows import LIFE_BITS
from dxpu.switch.errors.types import ContainmentTrigger, ErrorKind, PolicyPort, TriggerReason
from dxpu.tlp.types import AddressType, CompletionStatus, MessageCode, Routing, TlpClass

from .decide import IGNORED, Decider
from .types import PortState, Target

__all__ = ["DownstreamDecider"]


class _Judgement(data.Struct):
    """A TLP that may contain a port, one cycle after the verdict about it."""

    message: 1             #: one that does; else an error,
    kind: ErrorKind        #: if there is one
    advisory: 1
    trigger: 2             #: DPC Trigger Enable of the port
    port: 5
    own: 1                 #: the port that the TLP came from
    life: LIFE_BITS        #: of its slot
    reason: TriggerReason  #: for a message
    requester_id: 16


class DownstreamDecider(Decider):
    """Routes TLPs from slots: upstream, to another slot, or nowhere.

    Requests go by address or route field, whatever their requester ID is: messages of a device
    without a bus number have 0. Memory, I/O and AtomicOp requests need Bus Master Enable and D0 in
    the port, and in the upstream port too if they go up.
    They go to another slot if they are in its window, nowhere if they are in the window of their
    own port or in an unclaimed part of the upstream port's windows, else upstream. Completions and
    messages by ID do the same with bus numbers, without regard to Bus Master Enable. Access control
    (source validation, translation blocking, request and completion redirection, upstream
    forwarding, direct translated requests) is as the port's ACS registers say; what it blocks is
    answered with Completer Abort. With ``strict_source``, a request whose requester ID is not on a
    bus of its port is blocked without source validation, too, with Unsupported Request.
    Error messages need SERR# Enable in both bridges; those that trigger containment of their port
    end here. Local messages end here, and so does PME_TO_Ack; those about INTx and that one have an
    effect in the switch.
    The completer of a request that nobody takes is the last port that it came to; the answer goes
    back to the slot, whatever requester ID it names. TLPs from a slot whose link is not active have
    no effect, but for those that are ``due``.

    With Downstream Port Containment it is known one cycle after a verdict whether it triggers.
    While that is looked at, no other TLP is decided about, and all later ones of the slot's life
    are dropped, ``due`` or not.

    Ref: PCIe Base 5.0, 2.2.4, 2.2.8, 6.12, 6.15.3, 7.5.1.1.3; PCI-to-PCI Bridge 1.2, chapter 4

    Parameters
    ----------
    dpc : bool
        The ports have Downstream Port Containment.
    strict_source : bool
        Requests with a foreign requester ID never pass.

    Members
    -------
    upstream_id : 13
        Bus and device number of the upstream port.
    peer_room : 1
        There is room for non-posted requests from slot to slot. Without they are refused: no slot
        may hold up the completions of another.
    stat_blocked : 1
        Pulse: a request was blocked because of its requester ID or address type.
    stat_peer : 1
        Pulse: a TLP goes from slot to slot.
    trigger : :class:`~.errors.types.ContainmentTrigger`
        A message, or an error of a TLP, triggers containment; if the port is contained already, it
        stays as it is.
    policy : :class:`~.errors.types.PolicyPort`
    stat_fenced : 1
        Pulse: a TLP from a slot whose link is not active was dropped.
    """

    #: Codes of the messages about INTx.
    INTX = tuple(code.value for code in MessageCode if "SERT_INT" in code.name)

    def __init__(self, ports, *, dpc=False, strict_source=False, wide=True):
        self._dpc, self._strict = dpc, strict_source
        super().__init__(ports, {
            "upstream_id": In(13),
            "peer_room": In(1, init=1),
            "trigger": Out(ContainmentTrigger),
            "policy": Out(PolicyPort()),
            "stat_blocked": Out(1),
            "stat_peer": Out(1),
            "stat_fenced": Out(1),
        }, wide=wide)
        self._source = Signal(PortState, reset_less=True)  #: of the port it comes from
        self._source_active = Signal(reset_less=True)      #: its link, or nobody asks for it
        self._own = Signal(reset_less=True)                #: what was hit is that same port
        self._for_us = Signal(reset_less=True)             #: it names the upstream port itself
        self._current = Signal(reset_less=True)            #: it is of its slot's current life

    def _learn(self, m):
        super()._learn(m)
        port = self._a.port
        self._select(m, self._source, port)
        m.d.sync += [
            self._source_active.eq(self._a.due | self.link_active.bit_select(port, 1)),
            self._own.eq(self.result.p.port == port),
            self._current.eq(self._a.life == Array(self.lives)[port]),
            # Bus 0 is the root's: no upstream port is there.
            self._for_us.eq((self._a.info.target_id == Cat(C(0, 3), self.upstream_id))
                            & self.upstream_id[5:].any()),
        ]

    def _rules(self, m):
        info, source, up = self._b.info, self._source, self.states[0]
        upward, peer, quiet, inner = Signal(), Signal(), Signal(), Signal()
        self._error, self._crosses, self._stops = Signal(2), Signal(), Signal()
        source_active = self._source_active
        if self._dpc:
            source_active = Signal()
            m.d.comb += source_active.eq(self._source_active & ~self._contain(m))
        # 1 if the way up is open: bus mastering counts for memory and I/O requests only.
        open_up = Signal(init=1)
        m.d.comb += [self._who.eq(self._port_id(self._b.port)), self._where.eq(self._b.port + 1)]
        violation = Signal()

        requester = info.requester_id[8:]
        genuine = (source.secondary.any() & (requester >= source.secondary)
                   & (requester <= source.subordinate))
        blocked, translated = Signal(), Signal()
        m.d.comb += [
            translated.eq(info.is_memory & source.translation
                          & (info.at != AddressType.UNTRANSLATED)),
            blocked.eq((info.cls != TlpClass.CPL) & ~genuine
                       & (source.validate | C(self._strict, 1)) | translated),
        ]
        m.d.comb += self._status.eq(CompletionStatus.UR)
        with m.If(~source_active):
            m.d.comb += [quiet.eq(1), self._verdict.respond.eq(0)]
        with m.Elif(blocked):
            m.d.comb += quiet.eq(1)
            m.d.comb += violation.eq(source.validate | translated)
            with m.If(violation):
                m.d.comb += self._status.eq(CompletionStatus.CA)
        with m.Elif(self._is_address()):
            with m.If(source.master & (source.power == 0)):
                self._by_address(m, upward, peer)
                m.d.comb += open_up.eq(up.master & (up.power == 0))
        with m.Elif(info.is_config):
            pass  # never goes up
        with m.Elif(info.routing == Routing.ID):
            self._by_bus(m, upward, peer)
        with m.Elif(info.routing == Routing.TO_ROOT):
            m.d.comb += [upward.eq(self._errors_pass(m, source, up)), quiet.eq(~upward)]
        with m.Elif(info.routing == Routing.GATHER):
            m.d.comb += [
                inner.eq(info.message_code == MessageCode.PME_TO_ACK),
                quiet.eq(inner),
            ]
        with m.Elif(info.routing == Routing.LOCAL):
            m.d.comb += [
                # Without LTR it is a message with an unknown code (6.18).
                inner.eq(info.message_code.matches(*self.INTX)
                         | (info.message_code == MessageCode.LTR) & source.ltr
                         & (info.payload_dwords == 0)),
                quiet.eq(inner | info.message_code.matches(*IGNORED)),
            ]

        with m.If(inner):
            m.d.comb += self._verdict.target.eq(Target.MESSAGE)
        # Egress is blocked only for what would leave, not for what the way up is closed to.
        through = PortState(Mux(upward & open_up, Value.cast(up),
                                Mux(peer, Value.cast(self._target), 0)))
        self._send(m, upward & open_up & ~self._refused(up), upward, peer)
        self._to_held(m, peer & ~upward)
        self._count(m, ~quiet)
        lost = (~quiet | blocked) & ~(peer & self._lonely(through))
        self._note(m, lost=source_active & lost, refused=through,
                   source=(self._b.port + 1)[:6], violation=violation)
        with m.If(~source_active):
            m.d.comb += self._verdict.note.eq(0)
        with m.Elif(violation & (info.cls == TlpClass.NP)):
            m.d.comb += self._verdict.note.aborted.eq(1)
        with m.Elif(self._error.any() & ~self.down):
            m.d.comb += [
                self._verdict.note.exists.eq(1),
                self._verdict.note.message.eq(self._error),
                self._verdict.note.crossed.eq(self._crosses),
                self._verdict.note.sent.eq(upward),
            ]
        m.d.comb += [
            self.stat_blocked.eq(self._decided & source_active & blocked),
            self.stat_fenced.eq(self._decided & ~source_active),
            self.stat_peer.eq(self._decided & (self._verdict.target == Target.SLOT)),
        ]

    def _contain(self, m):
        """Judge the last verdict; returns whether the TLP comes behind one that contained its port.

        What comes from an earlier life of the slot contains nothing.
        """
        note, info = self._verdict.note, self._b.info
        looks, judged = Signal(), Signal(_Judgement, reset_less=True)
        own = note.reporter == self._b.port + 1
        m.d.sync += [
            looks.eq(self._decided & note.exists & self._current
                     & (self._stops & note.message.any() | (note.kind != ErrorKind.NONE)
                        & note.reporter.any())),
            judged.message.eq(note.message.any()),
            judged.kind.eq(note.kind),
            judged.advisory.eq(note.advisory),
            judged.trigger.eq(Mux(own, self._source.trigger, self._target.trigger)),
            judged.port.eq(Mux(note.message.any(), self._b.port, note.reporter - 1)),
            judged.own.eq(note.message.any() | own),
            judged.life.eq(self._b.life),
            judged.reason.eq(Mux(note.message[1], TriggerReason.FATAL_MESSAGE,
                                 TriggerReason.NONFATAL_MESSAGE)),
            judged.requester_id.eq(info.requester_id),
        ]
        triggers = Signal()
        m.d.comb += [
            self._pause.eq(looks),
            self.policy.function.eq(judged.port + 1),
            self.policy.kind.eq(judged.kind),
            triggers.eq(looks & (judged.message | ~self.policy.masked & (
                self.policy.fatal | ~judged.advisory) & (
                (judged.trigger == 2) | (judged.trigger == 1) & self.policy.fatal))),
            self.trigger.strobe.eq(triggers),
            self.trigger.port.eq(judged.port),
            self.trigger.reason.eq(Mux(judged.message, judged.reason, TriggerReason.ERROR)),
            self.trigger.requester_id.eq(Mux(judged.message, judged.requester_id, 0)),
        ]
        # Until the link of the slot ends once more, no other life can have that number.
        cut, lives = Signal(self._ports), [Signal(LIFE_BITS, name=f"cut_life{n}")
                                           for n in range(self._ports)]
        for n, life in enumerate(lives):
            with m.If(self.states[n + 1].contained):
                pass
            with m.Elif(triggers & judged.own & (judged.port == n)):
                m.d.sync += [cut[n].eq(1), life.eq(judged.life)]
            with m.Elif((self.lives[n] - life)[:LIFE_BITS] > 1):
                m.d.sync += cut[n].eq(0)
        return (cut.bit_select(self._b.port, 1)
                & (self._b.life == Array(lives)[self._b.port]))

    def _errors_pass(self, m, source, up):
        """Whether this is no error message, or one that both bridges pass on (6.2.6), and does not
        trigger containment (6.2.10).

        A correctable error needs SERR# Enable of the bridge; the others also that of Command, or
        their enable in Device Control.
        """
        code = self._b.info.message_code
        severe = Cat(code == MessageCode.ERR_NONFATAL, code == MessageCode.ERR_FATAL)
        passes = [state.forward_errors & (
            ~severe.any() | state.serr | Mux(severe[1], state.fatal, state.nonfatal))
            for state in (source, up)]
        stops = severe[1] & (source.trigger == 1) | severe.any() & (source.trigger == 2)
        m.d.comb += [self._error.eq(severe), self._stops.eq(stops),
                     self._crosses.eq(passes[0] & ~stops)]
        return (~(severe.any() | (code == MessageCode.ERR_COR)) | passes[0] & passes[1]) & ~stops

    def _by_address(self, m, upward, peer):
        info, source = self._b.info, self._source
        direct = source.direct & info.is_memory & (info.at == AddressType.TRANSLATED)
        with m.If(self._claimed()):
            with m.If(self._own):
                m.d.comb += upward.eq(source.upstream)
            with m.Else():
                m.d.comb += [upward.eq(source.redirect & ~direct), peer.eq(~upward)]
        with m.Else():
            m.d.comb += upward.eq(~self._windowed)

    def _by_bus(self, m, upward, peer):
        info, source = self._b.info, self._source
        with m.If(self._hit & self._own):
            m.d.comb += upward.eq(source.upstream)
        with m.Elif(self._hit):
            relaxed = info.attr[1]
            m.d.comb += [
                upward.eq(Mux(info.cls == TlpClass.CPL, source.redirect_cpl & ~relaxed,
                              source.redirect)),
                peer.eq(~upward),
            ]
        with m.Else():
            m.d.comb += upward.eq(~(self._inside | self._internal | self._for_us))

    def _send(self, m, up_open, upward, peer):
        """Turn the choice into a target; the port at which it fails is the completer."""
        with m.If(upward):
            m.d.comb += [self._who.eq(Cat(C(0, 3), self.upstream_id)), self._where.eq(0)]
        with m.Elif(peer):
            m.d.comb += [self._who.eq(self._port_id(self._port)), self._where.eq(self._port + 1)]
        with m.If(up_open):
            m.d.comb += self._verdict.target.eq(Target.UPSTREAM)
        with m.Elif(peer & self._active & ~self._refused(self._target)
                    & (self.peer_room | (self._b.info.cls != TlpClass.NP))):
            m.d.comb += self._verdict.target.eq(Target.SLOT)
        with m.Else():
            m.d.comb += self._verdict.life.eq(self._b.life)  # also that of an answer
            with m.If(peer & ~self._active & self._target.abort):
                m.d.comb += self._status.eq(CompletionStatus.CA)
