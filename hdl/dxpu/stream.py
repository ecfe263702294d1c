"""Packets on streams: the one way data moves between the blocks of this project.

A packet (a TLP, or an Ethernet frame without its FCS) travels as *beats* of ``width`` bits. Every
packet on the core side is a whole number of dwords (4 bytes): TLPs are by definition, and every DXF
frame is by the choice of its fields. Bytes are in wire order, byte 0 in the least significant lane.

The stream rules of :mod:`amaranth.lib.stream` hold everywhere: once ``valid`` is high the payload
does not change until it is taken, and ``valid`` never waits for ``ready``.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["WIDTHS", "PacketLayout", "PacketSignature", "Register", "check_width", "connect",
           "payload_shape"]

#: Data widths, in bits, that every block of the core supports.
WIDTHS = (32, 64, 128, 256, 512)


def check_width(width):
    """Return ``width``, or raise :exc:`ValueError` if no block of this project has that width."""
    if width not in WIDTHS:
        raise ValueError(f"width must be one of 32, 64, 128, 256, 512, not {width!r}")
    return width


class PacketLayout(data.StructLayout):
    """One beat of a packet.

    Parameters
    ----------
    width : int
        Data bits per beat; one of :data:`WIDTHS`.
    meta : shape-like, optional
        Side information about the packet. It holds on every beat from first to last.

    Members
    -------
    data : ``width``
        Bytes in wire order, byte 0 least significant. Lanes past ``dwords`` are don't-care.
    dwords : ``range(width // 32 + 1)``
        Valid dwords in this beat: ``width // 32`` in each beat but the last, 1 or more in that.
    first, last : 1
        First and last beat of the packet; both in a packet of one beat.
    discard : 1
        Valid with ``last``: the whole packet is bad and must have no effect.
    meta : ``meta``
        Only if asked for.
    """

    def __init__(self, width, meta=None):
        members = {
            "data": check_width(width),
            "dwords": range(width // 32 + 1),
            "first": 1,
            "last": 1,
            "discard": 1,
        }
        if meta is not None:
            members["meta"] = meta
        super().__init__(members)
        self._width = width
        self._meta = meta

    @property
    def width(self):
        """Data bits per beat."""
        return self._width

    @property
    def lanes(self):
        """Dwords per full beat."""
        return self._width // 32

    @property
    def meta(self):
        """Shape of the side information, or ``None``."""
        return self._meta


def PacketSignature(width, meta=None):
    """Stream of :class:`PacketLayout` beats, seen from the source."""
    return stream.Signature(PacketLayout(width, meta))


def connect(m, source, sink):
    """Connect ``source`` (out) to ``sink`` (in), and insist on equal payload layouts.

    :func:`amaranth.lib.wiring.connect` compares widths only, so that two different layouts of the
    same width would be connected silently.

    Raises
    ------
    TypeError
        If the payload layouts differ.
    """
    a, b = (payload_shape(x) for x in (source, sink))
    if a != b:
        raise TypeError(f"Cannot connect a stream of {a!r} to a stream of {b!r}")
    m.d.comb += [
        sink.payload.eq(source.payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def payload_shape(interface):
    """Payload shape of a stream interface."""
    payload = interface.payload
    return payload.shape() if hasattr(payload, "shape") else Value.cast(payload).shape()


class Register(wiring.Component):
    """Register stage that cuts every combinational path of a stream, ``ready`` included.

    Latency one cycle, throughput one word per cycle. Holds up to two words.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.

    Members
    -------
    i, o : stream of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._shape = shape

    def elaborate(self, platform):
        m = Module()
        spare = Signal(self._shape, reset_less=True)
        full = Signal()

        m.d.comb += self.i.ready.eq(~full)
        with m.If(self.o.ready | ~self.o.valid):
            with m.If(full):
                m.d.sync += [self.o.payload.eq(spare), self.o.valid.eq(1), full.eq(0)]
            with m.Else():
                m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [spare.eq(self.i.payload), full.eq(1)]
        return m
