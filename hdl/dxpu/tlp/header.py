"""Capture and decoding of the header of a TLP.

Ref: PCIe Base 5.0, 2.2.1 (general format), 2.2.4 to 2.2.9 (headers), 2.2.10 (prefixes).
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout

from .types import (
    MAX_END_END_PREFIXES, CompletionHeader1, CompletionHeader2, ConfigHeader2, Fmt, HeaderCommon,
    Malformed, MessageHeader1, RequestHeader1, Routing, TlpClass, TlpInfo, Type, swap_bytes,
)

__all__ = ["HeaderCapture", "Kind", "RawHeader", "TlpHeader", "decode", "tlp_dwords"]


class TlpHeader(data.Struct):
    """Header of a TLP, and how many prefixes are before it; :func:`decode` needs nothing else."""

    #: Header dwords in lane order; the fourth is unspecified in a header of three.
    words: data.ArrayLayout(32, 4)
    #: Prefix dwords before the header.
    prefixes: 3


class RawHeader(data.Struct):
    """Header of a TLP before it is decoded.

    The last two members are set by :class:`~dxpu.tlp.check.HeaderCheck`.
    """

    #: Header dwords in lane order; the fourth is unspecified in a header of three.
    words: data.ArrayLayout(32, 4)
    #: Prefix dwords before the header.
    prefixes: 3
    #: Dwords of the whole TLP, as its header says.
    dwords: 12
    #: First check that failed; ``Malformed.LENGTH`` is checked later.
    cause: Malformed


class HeaderCapture(wiring.Component):
    """Captures the header dwords of each TLP from its beats.

    Gives exactly one header for each packet, in the cycle after the beat that completes the header,
    or that ends the packet before (``truncated``). Throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    beat, take : packet beat, 1
        A beat, and whether it is taken in this cycle.
    max_payload : 3
        Max_Payload_Size of the port at which the packet arrived; sampled with its first beat.
    strobe : 1
        Pulse: a header is complete, and the members below are valid.
    words : 4 dwords
        Header in lane order.
    prefixes : 3
        Prefix dwords before the header, 0 to 4. A fifth is treated as the header.
    payload_limit : 3
        ``max_payload`` of the packet.
    truncated : 1
        The packet ended within its prefixes or its header.
    bad_prefix : 1
        A prefix is a local one.
    """

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({
            "beat": In(self._layout),
            "take": In(1),
            "max_payload": In(3),
            "strobe": Out(1),
            "words": Out(data.ArrayLayout(32, 4)),
            "prefixes": Out(3),
            "payload_limit": Out(3),
            "truncated": Out(1),
            "bad_prefix": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, lanes = self.beat, self._layout.lanes
        words = [HeaderCommon(beat.data.word_select(n, 32)) for n in range(lanes)]

        # State after the beats before. A first beat ignores it, so it is never cleared.
        have = Signal(4)        # header dwords captured: a thermometer
        count = Signal(3)       # prefix dwords
        local = Signal()        # one of them is a local prefix
        had = Signal.like(have)        # the same two, 0 in a first beat
        counted = Signal.like(count)
        m.d.comb += [
            had.eq(Mux(beat.first, 0, have)),
            counted.eq(Mux(beat.first, 0, count)),
        ]

        # Lanes in which the header may start: after contiguous prefixes, four at most.
        reach = min(lanes, MAX_END_END_PREFIXES + 1)
        valid = Signal(lanes)
        is_prefix = Signal(reach)
        leads = Signal(reach)   # all lanes below hold prefixes
        taken = Signal(reach)   # and so does this one
        starts = Signal(reach)
        exhausted = Signal(reach)
        m.d.comb += [valid[n].eq(beat.dwords > n) for n in range(lanes)]
        m.d.comb += leads[0].eq(~had[0])
        for n in range(reach):
            if n:
                m.d.comb += leads[n].eq(taken[n - 1])
            # A wide beat has the start of the header, or the end of the packet, in any case.
            m.d.comb += [
                exhausted[n].eq(n == MAX_END_END_PREFIXES if lanes > MAX_END_END_PREFIXES
                                else counted == MAX_END_END_PREFIXES - n),
                is_prefix[n].eq((words[n].fmt == Fmt.PREFIX) & ~exhausted[n]),
                starts[n].eq(leads[n] & valid[n] & ~is_prefix[n]),
                taken[n].eq(is_prefix[:n + 1].all() & ~had[0] & valid[n]),
            ]

        # Lane of header dword 0 relative to this beat; negative if it came in an earlier one.
        offsets = {n: starts[n] for n in range(reach)}
        for seen in (1, 2, 3):
            offsets[-seen] = had[seen - 1] & ~had[seen]
        for n in range(4):
            sources = [(at, n + offset) for offset, at in offsets.items()
                       if 0 <= n + offset < lanes]
            if not sources:
                continue
            with m.If(self.take & reduce(or_, (at for at, _ in sources))):
                m.d.sync += self.words[n].eq(_select(
                    [(at, beat.data.word_select(lane, 32)) for at, lane in sources]))
            captured = reduce(or_, (at & valid[lane] for at, lane in sources))
            with m.If(self.take):
                m.d.sync += have[n].eq(had[n] | captured)

        # Bit 4 of the type of a prefix: end-to-end.
        here = Signal(reach)
        m.d.comb += [here[n].eq(taken[n] & ~words[n].type[4]) for n in range(reach)]
        with m.If(self.take):
            m.d.sync += [
                count.eq(counted + _ones(taken)),
                local.eq((local & ~beat.first) | here.any()),
            ]
            with m.If(beat.first):
                m.d.sync += self.payload_limit.eq(self.max_payload)

        self._finish(m, have)
        m.d.comb += [self.prefixes.eq(count), self.bad_prefix.eq(local)]
        return m

    def _finish(self, m, have):
        """Give the header once, when it is complete or the packet has ended."""
        fresh, ended, given = Signal(), Signal(), Signal()
        complete = Signal()
        m.d.sync += [fresh.eq(self.take), ended.eq(self.beat.last)]
        m.d.comb += [
            complete.eq(have[3] | (have[2] & ~HeaderCommon(self.words[0]).fmt[0])),
            self.truncated.eq(~complete),
            self.strobe.eq(fresh & ~given & (complete | ended)),
        ]
        with m.If(fresh):
            m.d.sync += given.eq(~ended & (given | complete))


def _select(sources):
    """AND-OR multiplexer of pairs of condition and value; at most one condition holds."""
    if len(sources) == 1:
        return sources[0][1]
    return reduce(or_, (Mux(at, value, 0) for at, value in sources))


def _ones(thermometer):
    """Number of ones in a thermometer code."""
    count = Const(0, 3)
    for n in range(len(thermometer)):
        count = Mux(thermometer[n], n + 1, count)
    return count


class Kind(data.Struct):
    """Properties that follow from Fmt and Type alone.

    If ``defined`` is 0 the codes are reserved and the other members have no meaning.
    """

    defined: 1
    cls: TlpClass
    routing: Routing
    is_memory: 1
    is_io: 1
    is_config: 1
    is_type1: 1
    is_message: 1
    is_completion: 1
    is_atomic: 1
    is_locked: 1
    is_write: 1
    is_cas: 1

    @staticmethod
    def of(m, fmt, type):
        """Signal with the kind of ``fmt`` and ``type``, driven in ``m``."""
        kind = Signal(Kind)
        with_data, long = fmt[1], fmt[0]
        memory, locked = type == Type.MEMORY, type == Type.MEMORY_LOCKED
        completion = type.matches(Type.COMPLETION, Type.COMPLETION_LOCKED)
        m.d.comb += [
            kind.is_atomic.eq(type.matches(Type.FETCH_ADD, Type.SWAP, Type.CAS)),
            kind.is_cas.eq(type == Type.CAS),
            kind.is_memory.eq(memory | locked | kind.is_atomic),
            kind.is_io.eq(type == Type.IO),
            kind.is_config.eq(type.matches(Type.CONFIG_0, Type.CONFIG_1)),
            kind.is_type1.eq(type == Type.CONFIG_1),
            kind.is_message.eq(type.matches("10---")),
            kind.is_completion.eq(completion),
            kind.is_locked.eq(type.matches(Type.MEMORY_LOCKED, Type.COMPLETION_LOCKED)),
            kind.is_write.eq(with_data & (memory | kind.is_io | kind.is_config)),
            kind.defined.eq(~fmt[2] & (
                memory
                | (locked & ~with_data)
                | (kind.is_atomic & with_data)
                | ((kind.is_io | kind.is_config | completion) & ~long)
                | (kind.is_message & long))),
            kind.cls.eq(Mux(completion, TlpClass.CPL,
                            Mux(kind.is_message | (memory & with_data),
                                TlpClass.P, TlpClass.NP))),
        ]
        with m.If(kind.is_message):
            # The reserved codes 6 and 7 end at the receiver, as local messages do.
            m.d.comb += kind.routing.eq(Mux(type[1:3] == 3, Routing.LOCAL, type[:3]))
        with m.Elif(completion | kind.is_config):
            m.d.comb += kind.routing.eq(Routing.ID)
        with m.Else():
            m.d.comb += kind.routing.eq(Routing.ADDRESS)
        return kind


def tlp_dwords(common, prefixes):
    """Dwords of a whole TLP, as its header says: 3 to 1033.

    Parameters
    ----------
    common : :class:`~dxpu.tlp.types.HeaderCommon` view
        First dword of the header.
    prefixes : value of 3 bits
        Prefix dwords before it.
    """
    length = Cat(common.length_low, common.length_high)
    return (Mux(common.fmt[1], Cat(length, length == 0), 0)
            + (prefixes + Mux(common.fmt[0], 4, 3) + common.td)[:4])


def decode(m, raw, info):
    """Drive all members of ``info`` (a :class:`TlpInfo`).

    Parameters
    ----------
    raw : :class:`RawHeader` or :class:`TlpHeader` view
    info : :class:`~dxpu.tlp.types.TlpInfo` view
    """
    common = HeaderCommon(raw.words[0])
    request = RequestHeader1(raw.words[1])
    completion1 = CompletionHeader1(raw.words[1])
    completion2 = CompletionHeader2(raw.words[2])
    config = ConfigHeader2(raw.words[2])
    kind = Kind.of(m, common.fmt, common.type)
    length = Cat(common.length_low, common.length_high)
    implied = common.th & kind.is_memory & ~common.fmt[1]
    id_4, id_8 = swap_bytes(request.requester_id), swap_bytes(completion2.requester_id)
    low = swap_bytes(raw.words[2])
    address = Mux(common.fmt[0], Cat(swap_bytes(raw.words[3]), low), low)
    shared = ["cls", "routing", *(n for n, _ in data.Layout.cast(TlpInfo) if n.startswith("is_"))]
    m.d.comb += [getattr(info, name).eq(getattr(kind, name)) for name in shared]
    m.d.comb += [
        info.fmt.eq(common.fmt),
        info.type.eq(common.type),
        info.prefix_dwords.eq(raw.prefixes),
        info.header_dwords.eq(Mux(common.fmt[0], 4, 3)),
        info.payload_dwords.eq(Mux(common.fmt[1], Cat(length, length == 0), 0)),
        info.digest.eq(common.td),
        info.dwords.eq(raw.dwords if raw.shape() is RawHeader
                       else tlp_dwords(common, raw.prefixes)),
        info.tc.eq(common.tc),
        info.attr.eq(Cat(common.attr_low, common.attr_high)),
        info.ep.eq(common.ep),
        info.at.eq(common.at),
        info.requester_id.eq(Mux(kind.is_completion, id_8, id_4)),
        info.completer_id.eq(id_4),
        info.tag.eq(Cat(Mux(kind.is_completion, completion2.tag, request.tag),
                        common.t8, common.t9)),
        # A memory read with hints has a steering tag in place of its byte enables (2.2.5).
        info.first_be.eq(request.first_be | implied.replicate(4)),
        info.last_be.eq(Mux(implied, (length != 1).replicate(4), request.last_be)),
        info.address.eq(address & ~3),
        info.target_id.eq(id_8),
        info.register.eq(Cat(config.register_low, config.register_high)),
        info.message_code.eq(MessageHeader1(raw.words[1]).message_code),
        info.status.eq(completion1.status),
        info.byte_count.eq(Cat(completion1.byte_count_low, completion1.byte_count_high)),
        info.lower_address.eq(completion2.lower_address),
        info.bcm.eq(completion1.bcm),
        info.length.eq(length),
    ]
