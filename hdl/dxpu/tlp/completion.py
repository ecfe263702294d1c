"""Completions that a switch generates: UR, CA, and those of its own registers.

Ref: PCIe Base 5.0, 2.2.9 (completion headers), 2.3.1.1 (byte count and lower address).
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout, PacketSignature

from .types import (
    CompletionHeader1, CompletionHeader2, CompletionRequest, Fmt, HeaderCommon, TlpInfo, Type,
    swap_bytes,
)

__all__ = ["CompletionBuilder", "completion_for", "completion_words"]


def completion_for(info, status, completer_id):
    """Completion without data for a request, as a :class:`CompletionRequest` view.

    Tag, traffic class and attributes are those of the request. Byte count and lower address are
    those of the first completion of a memory read; for an AtomicOp the byte count is the operand
    size, for all other requests 4, and the lower address 0. To answer with data, assign the view to
    a signal, and then its ``has_data`` and ``data``.

    Combinational; about five levels of logic behind ``info``.

    Parameters
    ----------
    info : :class:`TlpInfo` view
        A non-posted request.
    status : :class:`CompletionStatus` or value of that shape
        Completion status.
    completer_id : value of 16 bits
        Bus, device and function number of the completer.
    """
    if getattr(info, "shape", lambda: None)() is not TlpInfo:
        raise TypeError(f"info must be a view of TlpInfo, not {info!r}")
    reads = info.is_memory & ~info.is_atomic
    counts = Mux(reads, _byte_count(info), Mux(info.is_atomic, _operand(info), 4))
    lower = Mux(reads, Cat(_skipped(info.first_be), info.address[2:7]), 0)
    # In the order of the members of CompletionRequest.
    return CompletionRequest(Cat(
        _fit(status, 3), _fit(completer_id, 16), info.requester_id, info.tag,
        info.tc, info.attr, counts[:12], lower[:7], C(0, 1), C(0, 32), info.is_locked))


def _fit(value, width):
    """``value`` as exactly ``width`` bits."""
    return Cat(Value.cast(value), C(0, width))[:width]


def _skipped(enables):
    """Bytes before the first enabled one; 0 if there is none (a read of zero length)."""
    return Mux(enables[0], 0, Mux(enables[1], 1, Mux(enables[2], 2, Mux(enables[3], 3, 0))))[:2]


def _byte_count(info):
    """Bytes from the first to the last enabled one; 1 if there is none. 4096 is 0.

    It is the length in bytes, less those before the first and behind the last enabled one.
    """
    first, last = info.first_be, Mux(info.length == 1, info.first_be, info.last_be)
    behind = _skipped(Cat(last[3], last[2], last[1], last[0]))
    spare = Mux(first.any(), _skipped(first) + behind, 3)[:3]
    return (Cat(C(0, 2), info.length) - spare)[:12]


def _operand(info):
    """Operand size of an AtomicOp in bytes: of the two of a CAS only one is returned."""
    size = Cat(C(0, 2), info.length[:4])
    return Mux(info.type == Type.CAS, size >> 1, size)


class CompletionBuilder(wiring.Component):
    """Makes completion TLPs from their fields: a header of 3 dwords, and one of data if asked.

    Combinational, latency none; a packet takes as many cycles as it has beats, so one each cycle
    from 128 bits on. EP, TD, AT, TH and BCM are 0. ``CplLk`` and ``CplDLk`` instead of ``Cpl`` and
    ``CplD`` if ``locked``.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : stream of :class:`~dxpu.tlp.types.CompletionRequest`
    o : packet stream
    """

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({
            "i": In(stream.Signature(CompletionRequest)),
            "o": Out(PacketSignature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, request = self._layout.lanes, self.i.payload
        words = [*completion_words(m, request), request.data]

        # Data can only be alone in the last beat, or share it.
        beats = -(-4 // lanes)
        index = Signal(range(beats))
        final = Mux(request.has_data, (4 - 1) // lanes, (3 - 1) // lanes)
        with m.Switch(index):
            for n in range(beats):
                with m.Case(n):
                    m.d.comb += self.o.payload.data.eq(Cat(words[n * lanes:(n + 1) * lanes]))
        total = Mux(request.has_data, 4, 3)
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.o.payload.first.eq(index == 0),
            self.o.payload.last.eq(index == final),
            self.o.payload.dwords.eq(
                Mux(self.o.payload.last, total - index * lanes, lanes)),
            self.i.ready.eq(self.o.ready & self.o.payload.last),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += index.eq(Mux(self.o.payload.last, 0, index + 1))
        return m


def completion_words(m, request, length=None):
    """The three header dwords of a completion, in lane order, as views of signals driven in ``m``.

    Parameters
    ----------
    request : :class:`CompletionRequest` view
    length : value, optional
        Dwords of data, 0 for none; of the one dword of ``request`` if left out.
    """
    length = Value.cast(request.has_data if length is None else length)
    common, header1 = Signal(HeaderCommon), Signal(CompletionHeader1)
    header2 = Signal(CompletionHeader2)
    m.d.comb += [
        common.fmt.eq(Mux(length.any(), Fmt.HEADER_3_DATA, Fmt.HEADER_3)),
        common.type.eq(Mux(request.locked, Type.COMPLETION_LOCKED, Type.COMPLETION)),
        common.tc.eq(request.tc),
        common.attr_low.eq(request.attr[:2]),
        common.attr_high.eq(request.attr[2]),
        common.t8.eq(request.tag[8]),
        common.t9.eq(request.tag[9]),
        Cat(common.length_low, common.length_high).eq(length),
        header1.completer_id.eq(swap_bytes(request.completer_id)),
        header1.status.eq(request.status),
        header1.byte_count_low.eq(request.byte_count[:8]),
        header1.byte_count_high.eq(request.byte_count[8:]),
        header2.requester_id.eq(swap_bytes(request.requester_id)),
        header2.tag.eq(request.tag[:8]),
        header2.lower_address.eq(request.lower_address),
    ]
    return [common, header1, header2]
