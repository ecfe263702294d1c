"""What a frame begins with: header, credit extension, and the body if it is a control frame."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..crc import CRC16_CCITT_FALSE, CRC32C, data_matrix, xor_tree, zeros_crc
from ..stream import check_width
from .format import (
    ACK_BYTES, CREDIT_BYTES, ETHERTYPE, EVENT_BYTES, HCRC_OFFSET, HCRC_START, HEADER_BYTES,
    MAC_PREFIX, SEQUENCED, VERSION, FrameType,
)
from .planner import FramePlan
from .types import Control, FrameRoute, RouteRequest

__all__ = ["PreambleBeat", "PreambleBuilder"]

GUARDED_BYTES = HCRC_OFFSET - HCRC_START
PREAMBLE_BYTES = HEADER_BYTES + CREDIT_BYTES + ACK_BYTES + 4


def wire(value, size):
    """``value`` as ``size`` bytes, big endian, the first byte in the low bits."""
    value = Value.cast(value)
    assert len(value) <= 8 * size
    value = Cat(value, Const(0, 8 * size - len(value)))
    return Cat(value.word_select(n, 8) for n in reversed(range(size)))


def credit_bytes(credit):
    """A credit extension or an entry of an ACK."""
    return Cat(wire(credit.cls, 1), wire(credit.generation, 1), wire(credit.header_limit, 2),
               wire(credit.data_limit, 2), wire(credit.echo, 2))


def PreambleBeat(width):
    """Layout of the beats of a preamble, with what the rest of the frame needs.

    Members
    -------
    data, dwords, first, last
        As in a packet; ``last`` is the end of the preamble. Lanes past ``dwords`` are zero.
    count : 5
        Records that follow; none in control frames.
    total : 13
        Dwords of these records.
    final : 1
        Each record ends a TLP.
    drop : 1
        There is no frame: its TLPs, if any, are to be dropped. No data then.
    binding : 32
        What the CRC of each TLP is XORed with.
    path : 4
    extension : 1
        The preamble has a credit extension.
    """
    return data.StructLayout({
        "data": width, "dwords": range(width // 32 + 1), "first": 1, "last": 1, "count": 5,
        "total": 13, "final": 1, "drop": 1, "binding": 32, "path": 4, "extension": 1,
    })


class PreambleBuilder(wiring.Component):
    """Asks the link for the values of the next frame's header and builds its first bytes.

    Control frames go before TLPs. One frame is being prepared while the one before it leaves; a
    plan of TLPs is taken only when ``hurry`` says that its preamble will be needed soon, so that it
    may grow until then. Latency from plan or control to the first beat: three cycles and what the
    link takes for its answer.

    Ref: docs/wire-format.md, header and credit extension

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    plan, plan_valid, plan_take
        Of the :class:`~dxpu.fabric.planner.Planner`.
    control : stream of :class:`Control`
    request, route : stream of :class:`RouteRequest` out, :class:`FrameRoute` in
    hurry : in
    o : stream of :func:`PreambleBeat`
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "plan": In(FramePlan),
            "plan_valid": In(1),
            "plan_take": Out(1),
            "control": In(stream.Signature(Control)),
            "request": Out(stream.Signature(RouteRequest)),
            "route": In(stream.Signature(FrameRoute)),
            "hurry": In(1),
            "o": Out(stream.Signature(PreambleBeat(width))),
        })

    def elaborate(self, platform):
        m = Module()
        control = Signal(Control, reset_less=True)  # with TLPs: type and row
        plan = Signal(FramePlan, reset_less=True)
        route = Signal(FrameRoute, reset_less=True)
        load, free = Signal(), Signal()

        consumes = Cat(control.type == t for t in sorted(SEQUENCED)).any()
        m.d.comb += [
            self.request.payload.row.eq(control.row),
            self.request.payload.consumes.eq(consumes),
            self.request.payload.tlps.eq(plan.count != 0),
            self.request.payload.life.eq(plan.life),
        ]
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += plan.eq(self.plan)
                with m.If(self.control.valid):
                    m.d.comb += self.control.ready.eq(1)
                    m.d.sync += [control.eq(self.control.payload), plan.count.eq(0)]
                    m.next = "Request"
                with m.Elif(self.plan_valid & self.hurry):
                    m.d.comb += self.plan_take.eq(1)
                    m.d.sync += [control.type.eq(self.plan.type), control.row.eq(self.plan.row)]
                    m.next = "Request"
            with m.State("Request"):
                # The answer may come with the request's `ready`, before it or after it.
                m.d.comb += [self.request.valid.eq(1), self.route.ready.eq(1)]
                with m.If(self.request.ready & self.route.valid):
                    m.next = "Build"
                with m.Elif(self.request.ready):
                    m.next = "Route"
                with m.Elif(self.route.valid):
                    m.next = "Answered"
            with m.State("Answered"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.next = "Build"
            with m.State("Route"):
                m.d.comb += self.route.ready.eq(1)
                with m.If(self.route.valid):
                    m.next = "Build"
            with m.State("Build"):
                with m.If(free):
                    m.d.comb += load.eq(1)
                    m.next = "Idle"
        with m.If(self.route.valid & self.route.ready):
            m.d.sync += route.eq(self.route.payload)

        self._shift_out(m, load, free, control, plan, route)
        return m

    def _shift_out(self, m, load, free, control, plan, route):
        """The preamble in a register that moves down by a beat for each one taken."""
        lanes = self._width // 32
        words, size = self._preamble(m, control, plan, route)
        register = Signal(max(len(words), self._width), reset_less=True)
        left = Signal(range(PREAMBLE_BYTES // 4 + 1))
        o, beat = self.o, self.o.payload
        last = left <= lanes
        m.d.comb += [
            free.eq(~o.valid | (o.ready & last)),
            beat.data.eq(register),
            beat.dwords.eq(Mux(last, left, lanes)),
            beat.last.eq(last),
        ]
        with m.If(load):
            m.d.sync += [
                register.eq(words),
                left.eq(Mux(route.ok, size, 0)),
                o.valid.eq(1),
                beat.first.eq(1),
                beat.count.eq(plan.count),
                beat.total.eq(plan.dwords),
                beat.drop.eq(~route.ok),
                beat.final.eq(plan.final),
                beat.binding.eq(Mux(control.type == FrameType.HDR, 0,
                                    Cat(route.seq[:16], route.tag))),
                beat.path.eq(route.path),
                beat.extension.eq(route.crx),
            ]
        with m.Elif(o.valid & o.ready):
            m.d.sync += [
                register.eq(register >> self._width),
                left.eq(left - lanes),
                beat.first.eq(0),
                o.valid.eq(~last),
            ]

    def _preamble(self, m, control, plan, route):
        """All bytes of the preamble, and how many dwords of them count."""
        guarded = Cat(
            wire(Cat(control.type, Const(VERSION, 4)), 1),
            wire(Cat(Mux(control.type == FrameType.TLP, plan.count, 0), Const(0, 1), route.ar,
                     route.crx), 1),
            wire(Cat(route.src_node, route.dst_node), 3),
            wire(route.dst_slot, 1), wire(route.src_slot, 1),
            wire(Cat(route.stream, route.path), 1),
            wire(route.tag, 2), wire(route.seq, 3), wire(route.ack, 3))
        extension = credit_bytes(route.credit)
        assert len(guarded) == 8 * GUARDED_BYTES and len(extension) == 8 * CREDIT_BYTES

        # Zeros before a message do not matter to the tree; so one tree serves both lengths.
        message = Mux(route.crx, Cat(guarded, extension), guarded << (8 * CREDIT_BYTES))
        hcrc = (xor_tree(message[:8 * (GUARDED_BYTES + CREDIT_BYTES)],
                         data_matrix(CRC16_CCITT_FALSE, GUARDED_BYTES + CREDIT_BYTES))
                ^ Mux(route.crx, zeros_crc(CRC16_CCITT_FALSE, GUARDED_BYTES + CREDIT_BYTES),
                      zeros_crc(CRC16_CCITT_FALSE, GUARDED_BYTES)))

        def mac(node):
            return Cat(Const(int.from_bytes(MAC_PREFIX, "little"), 24), wire(route.path, 1),
                       wire(node, 2))

        header = Cat(mac(route.dst_node), mac(route.src_node), wire(Const(ETHERTYPE, 16), 2),
                     guarded, wire(hcrc, 2))
        body, body_dwords = self._body(control, plan, route)
        words = Signal(8 * PREAMBLE_BYTES)
        size = Signal(range(PREAMBLE_BYTES // 4 + 1))
        m.d.comb += [
            words.eq(Cat(header, Mux(route.crx, Cat(extension, body), body))),
            size.eq(HEADER_BYTES // 4 + Mux(route.crx, CREDIT_BYTES // 4, 0) + body_dwords),
        ]
        return words, size

    def _body(self, control, plan, route):
        """The body of an ACK or EVENT with its CRC, and its dwords; or what a DATA begins with."""
        event = Cat(wire(control.code, 1), wire(Const(0, 8), 1), wire(control.generation, 2),
                    wire(control.argument, 4))
        entries = Cat(credit_bytes(credit) for credit in route.credits)
        assert len(event) == 8 * EVENT_BYTES and len(entries) == 8 * ACK_BYTES
        is_ack = control.type == FrameType.ACK
        message = Mux(is_ack, entries, event << (8 * (ACK_BYTES - EVENT_BYTES)))
        crc = (xor_tree(message[:8 * ACK_BYTES], data_matrix(CRC32C, ACK_BYTES))
               ^ Mux(is_ack, zeros_crc(CRC32C, ACK_BYTES), zeros_crc(CRC32C, EVENT_BYTES)))
        body = Mux(is_ack, Cat(entries, crc), Cat(event, crc))
        # Before the bytes of DATA: their offset and their number, which is without the CRC.
        place = Cat(wire(plan.offset << 2, 2), wire((plan.dwords - 1)[:11] << 2, 2))
        is_data = control.type == FrameType.DATA
        has_records = plan.count != 0
        return (Mux(has_records, Mux(is_data, place, 0), body),
                Mux(has_records, is_data,
                    Mux(is_ack, ACK_BYTES // 4 + 1, EVENT_BYTES // 4 + 1)))
