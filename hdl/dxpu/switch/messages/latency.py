"""Latency Tolerance Reporting: what the slots tolerate, told upstream as one.

Ref: PCIe Base 6.0, 2.2.8.8 (message), 6.18 (mechanism)
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature, check_width
from dxpu.switch.types import Verdict
from dxpu.tlp.types import MessageCode, Routing, swap_bytes

from .messages import MessageRequest

__all__ = ["Latency", "LatencyGatherer"]

#: Scales are powers of 32 ns; two of their eight codes are not permitted.
STEP, SCALES = 5, 6


class Latency(data.Struct):
    """A latency as in the message: ``value`` times 32 to the power of ``scale``, in ns."""

    value: 10
    scale: 3
    reserved: 2
    requirement: 1


class LatencyGatherer(wiring.Component):
    """Keeps the last LTR message of each slot, and sends the strictest of them upstream.

    Snooped and not snooped latencies are apart. Of those that slots require the least counts, less
    ``own``, and 0 if that is more; without any, none is required. What slots said is forgotten when
    their link goes and when LTR Mechanism Enable of their port is cleared. A message goes up when
    what it says has changed, and the upstream port has LTR Mechanism Enable; ``spacing`` to twice
    ``spacing`` cycles after one the next may go, which tells what has changed meanwhile.

    Some 16 cycles for each slot from a message to that of the upstream port.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Downstream ports.
    own : int
        Nanoseconds that the switch adds to the latency of a request; up to 31,744.
    spacing : int

    Members
    -------
    i : packet stream with :class:`Verdict`
        Messages of slots that end in the switch; those that are not LTR are ignored. Always ready.
    link_active, enable : ``ports``
    lives : array of numbers
        Of the slots; messages of an earlier life are not heard.
    tell : 1
        LTR Mechanism Enable of the upstream port.
    upstream_id : 13
        Bus and device number of the upstream port.
    o : stream of :class:`~.messages.MessageRequest`
    """

    def __init__(self, width, ports, *, own, spacing):
        if not isinstance(own, int) or not 0 <= own <= 31_744:
            raise ValueError(f"own must be an integer from 0 to 31744, not {own!r}")
        self._width, self._ports = check_width(width), ports
        self._own, self._spacing = own, spacing
        super().__init__({
            "i": In(PacketSignature(width, Verdict)),
            "link_active": In(ports),
            "enable": In(ports),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "tell": In(1),
            "upstream_id": In(13),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        known = self._hear(m)
        was_known, told_before = Signal(self._ports), Signal()
        port, found, best = Signal(range(self._ports)), Signal(), Signal(Latency)
        look, kind, stale = Signal(Latency), Signal(), Signal()
        time, tick, wait = Signal(range(self._spacing)), Signal(), Signal(2)
        told, changed = Signal(32), Signal()
        half, less = Signal(Latency), Signal(16)
        m.d.comb += [
            half.eq(self._kept(m, port).word_select(kind, 16)),
            less.eq(Mux(found, Value.cast(self._less(m, best)), 0)),
            tick.eq(time == self._spacing - 1),
        ]
        m.d.sync += [
            time.eq(Mux(tick, 0, time + 1)),
            wait.eq(wait - (tick & wait.any())),
            was_known.eq(known),
            told_before.eq(self.tell),
        ]

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [port.eq(0), kind.eq(0), found.eq(0), changed.eq(0)]
                with m.If(~self.tell):
                    m.d.sync += told.eq(0)
                with m.Elif(stale & ~wait.any()):
                    m.d.sync += stale.eq(0)
                    m.next = "Look"
            with m.State("Look"):
                m.d.sync += look.eq(half)
                with m.If(known.bit_select(port, 1) & half.requirement & (half.scale < SCALES)):
                    m.next = "Fit"
                with m.Else():
                    self._next(m, port)
            with m.State("Fit"):
                # With the least scale that has room for the value, the order is that of numbers.
                with m.If((look.value >> STEP == 0) & look.scale.any()):
                    m.d.sync += [look.value.eq(look.value << STEP), look.scale.eq(look.scale - 1)]
                with m.Else():
                    with m.If(~found | (Cat(look.value, look.scale) < Cat(best.value, best.scale))):
                        m.d.sync += [best.eq(look), found.eq(1)]
                    self._next(m, port)
            with m.State("Take"):
                changes = changed | (told.word_select(kind, 16) != less)
                m.d.sync += [told.word_select(kind, 16).eq(less), changed.eq(changes),
                             port.eq(0), kind.eq(1), found.eq(0)]
                m.next = "Look"
                with m.If(kind):
                    m.next = "Idle"
                    with m.If(self.tell & changes):
                        m.next = "Send"
            with m.State("Send"):
                m.d.sync += wait.eq(2)
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "Idle"
        with m.If(self._heard.any() | (was_known & ~known).any() | self.tell & ~told_before):
            m.d.sync += stale.eq(1)
        m.d.comb += [
            self.o.p.code.eq(MessageCode.LTR),
            self.o.p.routing.eq(Routing.LOCAL),
            self.o.p.requester_id.eq(Cat(C(0, 3), self.upstream_id)),
            self.o.p.data.eq(swap_bytes(told)),
        ]
        return m

    def _next(self, m, port):
        """Go on to the next port, or to what was found."""
        m.d.sync += port.eq(port + 1)
        m.next = "Look"
        with m.If(port == self._ports - 1):
            m.next = "Take"

    def _hear(self, m):
        """Take messages in; returns the ports that have said something."""
        i, lanes, verdict = self.i, self._width // 32, self.i.p.meta
        beat, ends = Signal(range(8 // lanes + 2)), Signal()
        self._word, self._port = Signal(32), Signal(5)
        known, open = Signal(self._ports), Signal(self._ports)
        self._heard = heard = Signal(self._ports)  # a cycle after the last beat
        m.d.comb += [
            i.ready.eq(1),
            open.eq(self.link_active & self.enable),
            ends.eq(i.valid & i.p.last & (verdict.code == MessageCode.LTR)),
        ]
        m.d.sync += [
            *(heard[n].eq(ends & open[n] & (verdict.source == n) & (verdict.life == life))
              for n, life in enumerate(self.lives)),
            self._port.eq(verdict.source),
            known.eq((known | heard) & open),
        ]
        with m.If(i.valid):
            m.d.sync += beat.eq(Mux(i.p.last, 0, beat + 1))
            for lane in range(lanes):
                with m.If(i.p.meta.prefix_dwords + 3 == beat * lanes + lane):
                    m.d.sync += self._word.eq(i.p.data.word_select(lane, 32))
        return known

    def _kept(self, m, port):
        """The last message of a port: snooped latency in the lower half."""
        m.submodules.memory = memory = Memory(shape=32, depth=self._ports, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self._port), write.data.eq(swap_bytes(self._word)),
            write.en.eq(self._heard.any()), read.addr.eq(port),
        ]
        return read.data

    def _less(self, m, best):
        """That latency less the switch's own, rounded down to what there is a code for.

        Above scale 0 the value is 32 or more, so that one scale below it has bits enough for the
        difference.
        """
        result, wide, own = Signal(Latency), Signal(15), Signal(15)
        above = best.scale.any()
        left = Signal(signed(16))
        with m.Switch(best.scale):
            for scale in range(SCALES):
                with m.Case(scale):
                    m.d.comb += own.eq(-(-self._own // 32**max(scale - 1, 0)))
        m.d.comb += [
            wide.eq(Mux(above, best.value << STEP, best.value)),
            left.eq(wide - own),
            result.requirement.eq(1),
        ]
        with m.If(left >= 1 << 10):
            m.d.comb += [result.value.eq(left >> STEP), result.scale.eq(best.scale)]
        with m.Elif(left > 0):
            m.d.comb += [result.value.eq(left), result.scale.eq(best.scale - above)]
        return result
