"""Decisions about TLPs that come from the root complex."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from dxpu.switch.config.placeholder_map import HELD, HELD_DWORDS
from dxpu.tlp.types import CompletionStatus, MessageCode, Routing

from .decide import IGNORED, Decider
from .types import PortState, Target

__all__ = ["UpstreamDecider"]


class UpstreamDecider(Decider):
    """Routes TLPs from upstream: to a slot, to all, to a port of the switch, or nowhere.

    A memory, I/O or AtomicOp request goes to the port in whose window it is, if it also is in a
    window of the upstream port, both ports' enables are set and both are in D0. Type 0
    configuration requests are for the upstream port; those of type 1 for a downstream port if they
    name the bus inside, else for a slot, as type 0 if they name the bus right below the port.
    Completions and messages by ID go to the port with the bus; broadcast messages to all slots;
    local messages end here. The completer of a request that nobody takes is the last port that it
    came to. The status is Unsupported Request, or what containment of that port asks for.

    A placeholder takes what is sent to its slot: configuration requests of type 0 for function 0
    are carried out, as accesses to the part of the port's configuration space that no request to
    the port itself reaches; it answers all else with UR.

    After a verdict for a configuration space the next lookup waits for ``config_done``: requests
    see what an earlier one of them changed.

    Ref: PCIe Base 5.0, 2.2.4, 2.2.8, 2.3.1, 7.3.3; 2.2.6.2 (captured bus and device numbers)

    Parameters
    ----------
    placeholders : bool
        Slots may have placeholders.

    Members
    -------
    upstream_id : 13
        Bus and device number captured from type 0 configuration writes.
    down : 1
        What was captured is forgotten, too.
    config_done : 1
        A ``CONFIG`` verdict has been carried out.
    broadcast_limit : 12
        Larger broadcast messages are refused.
    stat_config : 1
        Pulse: a request to a configuration space of the switch.
    captured_bus : array of numbers
        Bus numbers that placeholders have captured from configuration writes, 0 without.
    """

    def __init__(self, ports, *, placeholders=False, wide=True):
        self._placeholders = placeholders
        super().__init__(ports, {
            "upstream_id": Out(13),
            "config_done": In(1),
            "broadcast_limit": In(12),
            "stat_config": Out(1),
            "captured_bus": Out(data.ArrayLayout(8, ports)),
        }, wide=wide)
        self._aborted = Signal()  #: it is for a port in containment, which says Completer Abort

    def _rules(self, m):
        info, v, target, up = self._b.info, self._verdict, self._target, self.states[0]
        function, device, bus = (info.target_id[:3], info.target_id[3:8], info.target_id[8:])
        up_id, port_id = Cat(C(0, 3), self.upstream_id), self._port_id(self._port)
        readable = ~(info.is_write & info.ep)  # a poisoned write must change nothing (2.7.2.2)
        reached, quiet, mine = Signal(), Signal(), Signal()
        m.d.comb += mine.eq((function == 0) & Mux(
            self._internal, device < self._ports, Cat(device, bus) == self.upstream_id))

        port_number = self._port + 1
        m.d.comb += self._who.eq(up_id)
        with m.If(info.is_config & ~info.is_type1):
            with m.If((function == 0) & readable):
                m.d.comb += v.target.eq(Target.CONFIG)
                with m.If(info.is_write):
                    m.d.comb += self._who.eq(info.target_id)
        with m.Elif(info.is_config):
            with m.If(self._internal):
                with m.If((device < self._ports) & (function == 0)):
                    m.d.comb += [self._who.eq(self._port_id(device)), v.function.eq(device + 1),
                                 self._where.eq(device + 1)]
                    with m.If(readable):
                        m.d.comb += v.target.eq(Target.CONFIG)
            with m.Elif(self._inside & self._hit):
                m.d.comb += [
                    self._who.eq(port_id),
                    self._where.eq(port_number),
                    v.to_type0.eq(bus == target.secondary),
                    reached.eq(~v.to_type0 | target.ari | (device == 0)),
                ]
        with m.Elif(self._is_address()):
            with m.If(self._claimed() & self._windowed & (up.power == 0)):
                m.d.comb += [self._who.eq(port_id), self._where.eq(port_number), reached.eq(1)]
        with m.Elif(info.routing == Routing.ID):
            m.d.comb += [
                reached.eq(self._inside & self._hit),
                self._where.eq(Mux(reached, port_number, 0)),
                quiet.eq(mine & (info.message_code == MessageCode.VENDOR_DEFINED_1)
                         & info.is_message),
            ]
        with m.Elif(info.routing == Routing.BROADCAST):
            with m.If(info.dwords <= self.broadcast_limit):
                m.d.comb += [quiet.eq(1), v.target.eq(Target.ALL_SLOTS)]
        with m.Elif(info.routing == Routing.LOCAL):
            m.d.comb += quiet.eq(info.message_code.matches(*IGNORED))
            # A poisoned one must have no effect (2.7.2.2).
            with m.If((info.message_code == MessageCode.SET_SLOT_POWER_LIMIT)
                      & (info.payload_dwords == 1) & ~info.ep):
                m.d.comb += [quiet.eq(1), v.target.eq(Target.POWER)]

        m.d.comb += self._aborted.eq(reached & ~self._active & target.abort)
        with m.If(reached & self._active & ~self._refused(target)):
            m.d.comb += v.target.eq(Target.SLOT)
        if self._placeholders:
            self._held_takes(m, reached, readable)
        self._count(m, ~quiet)
        # What goes to a slot without a link is no error of anyone (2.9.1).
        blocked = Mux(reached, Value.cast(target), 0)
        self._note(m, lost=~quiet & ~(reached & self._lonely(target)), refused=PortState(blocked),
                   source=C(0, 6))
        self._configure(m)

    def _held_takes(self, m, reached, readable):
        """What a placeholder answers; requests to a port itself do not reach its registers."""
        v, info = self._verdict, self._b.info
        register, hidden = info.register, C(-1, 10)  # nothing is there
        with m.If(register[5:] == HELD >> 5):
            m.d.comb += v.register.eq(hidden)
        with m.If(self._to_held(m, reached)):
            with m.If(v.to_type0 & ~info.target_id[:8].any() & readable):
                m.d.comb += [
                    v.target.eq(Target.CONFIG),
                    v.function.eq(self._port + 1),
                    v.register.eq(Mux(register < HELD_DWORDS, HELD | register[:5], hidden)),
                ]
                with m.If(info.is_write):
                    m.d.comb += self._who.eq(info.target_id)
                    for n, bus in enumerate(self.captured_bus):
                        with m.If(self._decided & (self._port == n)):
                            m.d.sync += bus.eq(info.target_id[8:])
        for n, bus in enumerate(self.captured_bus):
            with m.If(~self.held[n]):
                m.d.sync += bus.eq(0)

    def _configure(self, m):
        """Status of what is answered; the capture; later lookups wait for configuration writes."""
        v, info = self._verdict, self._b.info
        own = v.target == Target.CONFIG
        waiting = Signal()
        m.d.comb += [
            self._status.eq(Mux(own, CompletionStatus.SC, Mux(
                self._aborted, CompletionStatus.CA, CompletionStatus.UR))),
            self.stat_config.eq(self._decided & own),
            self._hold.eq(waiting | self._pending & info.is_config),
        ]
        with m.If(self.config_done):
            m.d.sync += waiting.eq(0)
        with m.If(self.down):
            m.d.sync += self.upstream_id.eq(0)
        with m.If(self._decided & own):
            m.d.sync += waiting.eq(1)
            with m.If(info.is_write & ~info.is_type1):
                m.d.sync += self.upstream_id.eq(info.target_id[3:])
