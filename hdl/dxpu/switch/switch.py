"""The virtual PCIe switch of the host proxy."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import counted
from dxpu.arbiter import PacketArbiter
from dxpu.mapping.types import ConfigUpdate, LookupRequest, LookupResult
from dxpu.rows import LIFE_BITS
from dxpu.stream import (
    ForwardRegister, PacketLayout, PacketSignature, check_width, connect,
)
from dxpu.switch.config.identity import Identity
from dxpu.switch.errors.reporting import ErrorReporting
from dxpu.switch.errors.types import MalformedTlp
from dxpu.switch.hotplug.hotplug import SlotControl
from dxpu.switch.messages.interrupt import InterruptSender
from dxpu.switch.messages.latency import LatencyGatherer
from dxpu.switch.messages.messages import (
    IntxWires, MessageMerge, MessageSender, PmeGatherer, PowerLimits, SlotMessage,
)
from dxpu.switch.tracking.types import tracked_request
from dxpu.tlp.types import MessageCode, TlpClass, TlpInfo

from .agents import Answerer, Broadcaster, ConfigAgent
from .config_space import ConfigSpace
from .downstream import DownstreamDecider
from .forward import Forwarder
from .types import SlotInfo, SlotMeta, Target
from .upstream import UpstreamDecider

__all__ = ["VirtualSwitch"]


class VirtualSwitch(wiring.Component):
    """A PCIe switch with one upstream port and hot-plug downstream ports, seen from the fabric.

    TLPs come in whole and well-formed, and are routed as :class:`UpstreamDecider` and
    :class:`DownstreamDecider` say. Each direction decides and forwards in order. Nothing is dropped
    without a ``stat_`` pulse but local messages, which end in the switch, and error messages that
    are not enabled or that contain their port. Whatever needs a completion and is not forwarded
    gets one from the switch.

    Latency 5 cycles from a TLP's information to its first beat out with a
    :class:`~dxpu.mapping.HostTable` (lookup in two cycles) and idle outputs. Throughput one beat
    per cycle for TLPs of 4 beats and more, one TLP in 3 cycles else. After reset the configuration
    spaces are filled first; configuration requests wait, and with them what comes from upstream
    behind them.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Downstream ports, 1 to 32.
    identity : Identity, optional
        What the configuration headers say.

    Members
    -------
    upstream_info, upstream_beats : stream of :class:`~dxpu.tlp.types.TlpInfo`, packet stream
        TLPs from the root complex: what each is, and its beats, which wait until the TLP has been
        looked up.
    upstream_o : packet stream with :class:`~dxpu.tlp.types.TlpClass`
        To the root complex.
    downstream_info, downstream_beats : stream of :class:`SlotInfo`, packet stream
        The same of TLPs from the slots.
    downstream_early, downstream_keep : 1
        The payload of ``downstream_info`` is that of the next TLP, which may come, or not: its
        lookup begins. As long as the latter is 1 the payload stays.
    downstream_o : packet stream with :class:`SlotMeta`
        To the slots.
    lookup0, result0, lookup1, result1 : streams
        To the host table: for TLPs from upstream, and from slots.
    config : :class:`~dxpu.mapping.ConfigUpdate`
        Each configuration register that has a new value, reset values included.
    upstream_down : 1
        The link to the root complex is down: all functions are reset (PCIe Base 5.0, 6.6.1), and no
        slot has a link.
    present : ``ports``
        A GPU is bound to the slot. Slot Status follows it.
    link_up : ``ports``
        The link to that GPU works; 1 if nothing is connected. Link Status is active while this and
        ``present`` are 1 and the port is not disabled, in reset or switched off.
    press : ``ports``
        Pulse: the attention button of the slot is pressed.
    bound : ``ports``
        A GPU is to come into the slot, or is there; what holds its place has to go. ``present``
        does the same.
    serial : 32
        Lower half of the Device Serial Number of all functions.
    internal_error : ``ports``
        Pulse: an uncorrectable internal error of a downstream port, which it reports.
    malformed : stream of :class:`~dxpu.switch.errors.types.MalformedTlp`
        TLPs that were removed on their way here, and are to be reported.
    malformed_now : ``ports``
        Pulses: such a TLP of the slot is removed now. With Downstream Port Containment that may
        trigger; else it has no effect.
    contained : ``ports``
        Downstream Port Containment of the port has been triggered: nothing that comes from the slot
        now may pass. ``link_active`` falls a cycle later.
    max_payload : array of 3-bit values
        Max_Payload_Size of the functions, the upstream port first.
    slot_control : array of :class:`SlotControl`
        Indicators and power of the slots, as software wants them.
    in_use : ``ports``
        Memory Space Enable or Bus Master Enable of the port is set.
    link_active : ``ports``
        TLPs pass.
    lives : array of numbers
        How often the link of each slot has ended. Every TLP to or from a slot names the life in
        which its way was decided, or it came; whoever keeps TLPs drops those of earlier ones.
    slot_off : ``ports``
        Level: software has taken the link of the slot away, by Secondary Bus Reset of its port or
        of the upstream port, Link Disable or its power; or Downstream Port Containment has.
    orderly : ``ports``
        Level: whoever takes the GPU or its link away has agreed upon that with the operating
        system; it is no Surprise Down error.
    abort : ``ports``
        Level: completions made in place of the slot say Completer Abort, not Unsupported Request.
    bus : 8
        Number of the bus inside, on which the downstream ports are.
    peer_room : 1
        See :class:`DownstreamDecider`.
    placeholder : ``ports``
        A placeholder (:class:`~dxpu.switch.hotplug.placeholder.Placeholders`) stands in the slot,
        and its link is active.
    late : 1
        TLPs that are due from a slot whose link has ended are still to come. Until they have left,
        no answer to the root complex does: it must not read that the link is down before.
    stat_config, stat_unsupported0, stat_unclaimed0, stat_unexpected0 : 1
        Pulses about TLPs from upstream, see :class:`UpstreamDecider`.
    stat_unsupported1, stat_unclaimed1, stat_unexpected1, stat_blocked, stat_peer, stat_fenced : 1
        Pulses about TLPs from slots, see :class:`DownstreamDecider`.
    stat_interrupt : 1
        Pulse: an MSI of a hot-plug event or an INTx message left.
    stat_unlogged, stat_unsent : 1
        Pulses: an error whose header is not in the log, an error message that was not sent, see
        :class:`~dxpu.switch.errors.reporting.ErrorReporting`.
    """

    #: All counted events, and what each counts.
    STATS = {
        "stat_config": "Configuration reads and writes of the switch's own ports and placeholders.",
        "stat_unsupported0": "Non-posted requests from the host answered with UR.",
        "stat_unclaimed0": "Posted requests and messages from the host that nobody claims; "
                           "dropped.",
        "stat_unexpected0": "Completions from the host that nobody waits for; dropped.",
        "stat_unsupported1": "Non-posted requests from slots answered with UR.",
        "stat_unclaimed1": "Posted requests and messages from slots that nobody claims; dropped.",
        "stat_unexpected1": "Completions from slots that nobody waits for; dropped.",
        "stat_blocked": "Requests from slots that ACS blocks, or of a foreign requester in a build "
                        "with strict sources.",
        "stat_peer": "TLPs from slot to slot.",
        "stat_fenced": "TLPs from slots whose link is not active; dropped by the switch.",
        "stat_interrupt": "MSIs of hot-plug events and INTx messages that left towards the host.",
        "stat_unlogged": "Uncorrectable errors that are not masked, but whose header is not in the "
                         "log of their port: it holds an earlier one, or too many came at a time.",
        "stat_unsent": "Error messages of ports that were not sent, as the same one was waiting.",
    }

    def __init__(self, width, *, ports=8, identity=None):
        self._width = check_width(width)
        self._space = ConfigSpace(ports=ports, identity=identity)
        self._identity = identity or Identity()
        self._ports = ports
        super().__init__({
            "upstream_info": In(stream.Signature(TlpInfo)),
            "upstream_beats": In(PacketSignature(width)),
            "upstream_o": Out(PacketSignature(width, TlpClass)),
            "downstream_info": In(stream.Signature(SlotInfo)),
            "downstream_early": In(1),
            "downstream_keep": Out(1),
            "downstream_beats": In(PacketSignature(width)),
            "downstream_o": Out(PacketSignature(width, SlotMeta)),
            "lookup0": Out(stream.Signature(LookupRequest)),
            "result0": In(stream.Signature(LookupResult)),
            "lookup1": Out(stream.Signature(LookupRequest)),
            "result1": In(stream.Signature(LookupResult)),
            "config": Out(ConfigUpdate),
            "upstream_down": In(1),
            "present": In(ports),
            "link_up": In(ports, init=(1 << ports) - 1),
            "press": In(ports),
            "bound": In(ports),
            "internal_error": In(ports),
            "malformed": In(stream.Signature(MalformedTlp)),
            "malformed_now": In(ports),
            "contained": Out(ports),
            "max_payload": Out(data.ArrayLayout(3, ports + 1)),
            "slot_control": Out(SlotControl).array(ports),
            "in_use": Out(ports),
            "link_active": Out(ports),
            "lives": Out(data.ArrayLayout(LIFE_BITS, ports)),
            "slot_off": Out(ports),
            "serial": In(32, init=self._identity.serial & 0xFFFF_FFFF),
            "orderly": In(ports),
            "abort": Out(ports),
            "bus": Out(8),
            "peer_room": In(1, init=1),
            "late": In(1),
            "placeholder": Out(ports),
        } | counted(self.STATS))

    def elaborate(self, platform):
        m = Module()
        m.submodules.space = self._space
        self._message, self._turn_off = Signal(SlotMessage), Signal()
        self._forwarders = []
        self._turn = Signal()
        m.submodules.agent = self._agent = ConfigAgent(self._width)
        m.submodules.up_answer = self._up_answer = Answerer(self._width)
        m.submodules.down_answer = self._down_answer = Answerer(self._width)
        # Egress and tracking are ready by their own registers.
        m.submodules.to_up = self._to_up = PacketArbiter(
            self._width, count=4, home=0, meta=TlpClass, register=ForwardRegister)
        m.submodules.to_slot = self._to_slot = PacketArbiter(
            self._width, count=5, home=0, meta=SlotMeta, register=ForwardRegister)
        connect(m, self._to_up.o, wiring.flipped(self.upstream_o))
        connect(m, self._to_slot.o, wiring.flipped(self.downstream_o))
        self._wire_space(m)
        up = self._wire_upstream(m)
        self._wire_downstream(m, up)
        self._wire_answers(m, up)
        self._wire_messages(m, up)
        self._wire_errors(m, up)
        return m

    def _wire_space(self, m):
        space, agent = self._space, self._agent
        connect(m, agent.request, space.request)
        connect(m, space.response, agent.response)
        m.d.comb += [
            self.config.eq(space.config),
            space.present.eq(self.present),
            space.down.eq(self.upstream_down),
            space.link_up.eq(self.link_up),
            space.press.eq(self.press),
            space.bound.eq(self.bound),
            self.placeholder.eq(space.held),
            *(a.eq(b) for a, b in zip(self.slot_control, space.slot_control, strict=True)),
            space.slot_power.eq(agent.slot_power),
            space.serial.eq(self.serial),
            self.link_active.eq(space.link_active),
            self.slot_off.eq(space.slot_off),
            space.orderly.eq(self.orderly),
            *(self.abort[n].eq(state.abort) for n, state in enumerate(space.states[1:])),
            *(self.max_payload[n].eq(state.max_payload) for n, state in enumerate(space.states)),
            *(self.in_use[n].eq(space.states[n + 1].memory | space.states[n + 1].master)
              for n in range(self._ports)),
            self.bus.eq(space.states[0].secondary),
        ]
        self._was_active = was_active = Signal(self._ports)
        m.d.sync += was_active.eq(self.link_active)
        for n, life in enumerate(self.lives):
            with m.If(was_active[n] & ~self.link_active[n]):
                m.d.sync += life.eq(life + 1)

    def _wire_direction(self, m, decider, beats, forwarder, n):
        """The parts that both directions have."""
        connect(m, wiring.flipped(beats), forwarder.i)
        connect(m, decider.o, forwarder.verdict)
        self._forwarders.append(forwarder)
        connect(m, decider.lookup, wiring.flipped(getattr(self, f"lookup{n}")))
        connect(m, wiring.flipped(getattr(self, f"result{n}")), decider.result)
        m.d.comb += [
            decider.link_active.eq(self.link_active),
            decider.lives.eq(self.lives),
            decider.held.eq(self._space.held),
            decider.down.eq(self.upstream_down),
            self._space.refused[n].eq(decider.refused),
            self._space.refused_cls[n].eq(decider.refused_cls),
            *(a.eq(b) for a, b in zip(decider.states, self._space.states, strict=True)),
            *(getattr(self, f"{stat}{n}").eq(getattr(decider, stat))
              for stat in ("stat_unsupported", "stat_unclaimed", "stat_unexpected")),
        ]

    def _wire_upstream(self, m):
        m.submodules.up_decider = decider = UpstreamDecider(
            self._ports, placeholders=self._identity.placeholder is not None,
            wide=self._width > 64)
        m.submodules.up_forwarder = forwarder = Forwarder(self._width, (
            (Target.SLOT,), (Target.ALL_SLOTS,), (Target.CONFIG, Target.POWER)))
        m.submodules.broadcaster = broadcaster = Broadcaster(self._width, self._ports)
        self._broadcaster = broadcaster
        self._wire_direction(m, decider, self.upstream_beats, forwarder, 0)
        info = self.upstream_info
        m.d.comb += [
            decider.i.p.info.eq(info.payload),
            decider.i.p.end_prefix.eq(info.p.prefix_dwords.any()),
            decider.i.valid.eq(info.valid),
            info.ready.eq(decider.i.ready),
            decider.held_bus.eq(decider.captured_bus),
        ]

        to_slot, to_all, to_agent = forwarder.o
        self._pass(m, to_slot, self._to_slot.i[0], open=~broadcaster.busy)
        self._pass(m, to_all, broadcaster.i)
        m.d.comb += self._turn_off.eq(to_all.p.meta.code == MessageCode.PME_TURN_OFF)
        connect(m, to_agent, self._agent.i)
        connect(m, broadcaster.o, self._to_slot.i[1])
        m.d.comb += [
            decider.config_done.eq(self._agent.done),
            decider.broadcast_limit.eq(Broadcaster.LIMIT),
            broadcaster.link_active.eq(self.link_active),
            broadcaster.lives.eq(self.lives),
            self.stat_config.eq(decider.stat_config),
        ]
        self._merge(m, (forwarder.answer, self._agent.answer), self._up_answer.i)
        return decider

    def _wire_downstream(self, m, up):
        m.submodules.down_decider = decider = DownstreamDecider(
            self._ports, dpc=self._identity.slot.dpc,
            strict_source=self._identity.slot.strict_source, wide=self._width > 64)
        self._down_decider = decider
        m.submodules.down_forwarder = forwarder = Forwarder(self._width, (
            (Target.UPSTREAM,), (Target.SLOT,), (Target.MESSAGE,)))
        self._down_forwarder = forwarder
        self._wire_direction(m, decider, self.downstream_beats, forwarder, 1)
        info = self.downstream_info
        m.d.comb += [
            *(decider.i.p[k].eq(info.p[k]) for k in ("port", "life", "due", "info")),
            decider.i.p.end_prefix.eq(info.p.info.prefix_dwords.any()),
            decider.i.valid.eq(info.valid),
            decider.early.eq(self.downstream_early),
            self.downstream_keep.eq(decider.keep),
            info.ready.eq(decider.i.ready),
            decider.held_bus.eq(up.captured_bus),
        ]

        self._pass(m, forwarder.o[0], self._to_up.i[0])
        self._pass(m, forwarder.o[1], self._to_slot.i[2])
        connect(m, forwarder.answer, self._down_answer.i)
        message, heard = self._message, forwarder.o[2]
        self._heard = heard
        m.d.comb += [
            heard.ready.eq(1),
            message.strobe.eq(heard.valid & heard.p.last),
            message.port.eq(heard.p.meta.source),
            message.code.eq(heard.p.meta.code),
            message.life.eq(heard.p.meta.life),
            decider.upstream_id.eq(up.upstream_id),
            decider.peer_room.eq(self.peer_room),
            self.stat_blocked.eq(decider.stat_blocked),
            self.stat_peer.eq(decider.stat_peer),
            self.stat_fenced.eq(decider.stat_fenced),
        ]

    def _wire_answers(self, m, up):
        connect(m, self._down_answer.o, self._to_slot.i[3])
        m.submodules.interrupts = interrupts = InterruptSender(self._width, self._ports)
        self._interrupts = interrupts
        connect(m, interrupts.o, self._to_up.i[2])
        space, answer, within = self._space, self._up_answer.o, Signal()
        m.d.comb += [
            interrupts.config.eq(space.config),
            interrupts.secondary.eq(space.states[0].secondary),
            interrupts.upstream_id.eq(up.upstream_id),
            interrupts.request.eq(space.msi),
            space.msi_taken.eq(interrupts.taken),
            self.stat_interrupt.eq(interrupts.stat_interrupt),
        ]
        # An interrupt that is offered when an answer comes goes before it: the completion of the
        # write that forbids interrupts must not overtake it. It takes effect before it is answered.
        # Later ones do not: a slot that does nothing but interrupt would keep answers back.
        stands, behind, offered = Signal(), Signal(), interrupts.o
        with m.If(answer.valid & answer.ready):
            m.d.sync += [within.eq(~answer.p.last), stands.eq(0)]
        with m.Elif(answer.valid):
            m.d.sync += stands.eq(1)
        with m.If(offered.valid & offered.ready & offered.p.last):
            m.d.sync += behind.eq(0)
        with m.Elif(~stands):
            m.d.sync += behind.eq(offered.valid)
        self._pass(m, answer, self._to_up.i[1], open=within | ~self._lagging(m)
                   & ~Mux(stands, behind, offered.valid))

    def _lagging(self, m):
        """TLPs that came from slots before a link ended have not left."""
        info, verdict = self.downstream_info, self._down_forwarder.verdict
        inside, before, ended = Signal(6), Signal(6), Signal()
        leaves = verdict.valid & verdict.ready
        m.d.comb += ended.eq((self._was_active & ~self.link_active).any())
        m.d.sync += inside.eq(inside + (info.valid & info.ready) - leaves)
        with m.If(ended | self.late):
            m.d.sync += before.eq(inside + info.valid - leaves)
        with m.Elif(before.any()):
            m.d.sync += before.eq(before - leaves)
        return ended | self.late | before.any()

    def _wire_messages(self, m, up):
        """Messages that end here, and what follows from them."""
        m.submodules.wires = wires = IntxWires(self._ports)
        m.submodules.gatherer = gatherer = PmeGatherer(self._ports)
        m.submodules.sender = sender = MessageSender(self._width)
        self._sender = sender
        m.submodules.latency = latency = LatencyGatherer(
            self._width, self._ports, own=self._identity.latency,
            spacing=self._identity.latency_spacing)
        m.submodules.own_messages = self._gatherer = own = MessageMerge(3)
        connect(m, gatherer.o, own.i[0])
        connect(m, self._space.pme, own.i[1])
        connect(m, latency.o, own.i[2])
        self._pass(m, sender.o, self._to_up.i[3])
        m.submodules.limits = limits = PowerLimits(self._ports, self._identity)
        m.submodules.limit_sender = limit_sender = MessageSender(self._width)
        connect(m, limits.o, limit_sender.i)
        connect(m, limit_sender.o, self._to_slot.i[4])
        broadcast, turns_off = self._broadcaster.i, Signal()
        for part in (wires, gatherer):
            m.d.comb += [
                part.message.eq(self._message),
                part.link_active.eq(self.link_active),
                part.lives.eq(self.lives),
            ]
        up_state, *states = self._space.states
        m.d.comb += [
            latency.i.payload.eq(self._heard.payload),
            latency.i.valid.eq(self._heard.valid),
            latency.link_active.eq(self.link_active),
            latency.lives.eq(self.lives),
            latency.enable.eq(Cat(state.ltr for state in states)),
            latency.tell.eq(up_state.ltr),
            latency.upstream_id.eq(up.upstream_id),
            limits.config.eq(self._space.config),
            limits.link_active.eq(self.link_active),
            limits.lives.eq(self.lives),
            limits.silent.eq(Cat(c.no_power_limit for c in self.slot_control)),
            limits.secondary.eq(self._space.states[0].secondary),
            wires.own.eq(self._space.intx),
            self._interrupts.wires.eq(wires.wires),
            gatherer.upstream_id.eq(up.upstream_id),
            turns_off.eq(broadcast.valid & broadcast.ready & broadcast.p.last & self._turn_off),
            gatherer.start.eq(turns_off),
            self._space.turned_off.eq(turns_off),
        ]

    def _wire_errors(self, m, up):
        """Errors of TLPs: to the configuration spaces, and as messages upstream."""
        m.submodules.errors = errors = ErrorReporting(self._ports, identity=self._identity)
        space, decider = self._space, self._down_decider
        for n, forwarder in enumerate(self._forwarders):
            connect(m, forwarder.error, errors.records[n])
            wiring.connect(m, errors.readers[n], forwarder.headers)
        connect(m, wiring.flipped(self.malformed), errors.malformed)
        connect(m, errors.log, space.log)
        wiring.connect(m, space.errors, errors.status)
        wiring.connect(m, decider.policy, errors.policy)
        m.d.comb += [
            errors.internal.eq(self.internal_error),
            errors.surprise.eq(space.surprise),
            errors.upstream_id.eq(up.upstream_id),
            errors.config.eq(space.config),
            *(a.eq(b) for a, b in zip(errors.states, space.states, strict=True)),
            errors.announce.eq(space.announce),
            space.announced.eq(errors.announced),
            space.triggers[0].eq(decider.trigger),
            space.triggers[1].eq(errors.trigger),
            space.malformed.eq(self.malformed_now),
            self.contained.eq(Cat(state.contained for state in space.states[1:])),
            self.stat_unlogged.eq(errors.stat_unlogged),
            self.stat_unsent.eq(errors.stat_unsent),
        ]
        # Of two messages at a time, the one that was begun first goes first.
        gathered, sender, begun = self._gatherer.o, self._sender.i, Signal()
        turn = Signal()
        m.d.sync += begun.eq(sender.valid & ~sender.ready)
        with m.If(~begun):
            m.d.comb += turn.eq(errors.o.valid)
        with m.Else():
            m.d.comb += turn.eq(self._turn)
        m.d.sync += self._turn.eq(turn)
        m.d.comb += [
            sender.valid.eq(gathered.valid | errors.o.valid),
            sender.payload.eq(Mux(turn, errors.o.payload, gathered.payload)),
            errors.o.ready.eq(sender.ready & turn),
            gathered.ready.eq(sender.ready & ~turn),
        ]

    def _merge(self, m, sources, sink):
        """Two streams of answers into one; never both have one, as decisions wait meanwhile."""
        first, second = sources
        m.d.comb += [
            sink.valid.eq(first.valid | second.valid),
            sink.payload.eq(Mux(second.valid, second.payload, first.payload)),
            second.ready.eq(sink.ready),
            first.ready.eq(sink.ready & ~second.valid),
        ]

    def _pass(self, m, source, sink, open=1):
        """Connect packet streams whose side information differs, while ``open``."""
        meta = sink.p.shape().meta
        m.d.comb += [
            *(sink.p[k].eq(source.p[k]) for k, _ in PacketLayout(self._width)),
            sink.valid.eq(source.valid & open),
            source.ready.eq(sink.ready & open),
        ]
        if meta is TlpClass:
            m.d.comb += sink.p.meta.eq(source.p.meta.cls)
        elif meta is not None:
            verdict = source.p.meta
            m.d.comb += [
                sink.p.meta.port.eq(verdict.port), sink.p.meta.life.eq(verdict.life),
                sink.p.meta.cls.eq(verdict.cls),
                sink.p.meta.request.eq(tracked_request(
                    verdict.completion, verdict.splits, verdict.returns, slot=verdict.port)),
            ]
