"""Packets on streams, by which data moves between all blocks.

A packet (a TLP, or an Ethernet frame without its FCS) travels as *beats* of ``width`` bits. Every
packet on the core side is a whole number of dwords (4 bytes): TLPs are by definition, and every DXF
frame is by the choice of its fields. Bytes are in wire order, byte 0 in the least significant lane.

The stream rules of :mod:`amaranth.lib.stream` hold everywhere: once ``valid`` is high the payload
does not change until it is taken, and ``valid`` never waits for ``ready``.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["WIDTHS", "ForwardRegister", "PacketLayout", "PacketSignature", "Register",
           "check_width", "connect", "payload_shape"]

#: Data widths, in bits, that every block of the core supports.
WIDTHS = (32, 64, 128, 256, 512)


def check_width(width):
    """Return ``width``, or raise :exc:`ValueError` if blocks do not support it."""
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
        Side information about the packet, the same on each of its beats.

    Members
    -------
    data : ``width``
        Bytes in wire order, byte 0 least significant. Lanes from ``dwords`` on have no meaning.
    dwords : ``range(width // 32 + 1)``
        Valid dwords of the beat: ``width // 32`` in each but the last, 1 or more in the last.
    first, last : 1
        The beat is the first, the last of its packet; both in a packet of one beat.
    discard : 1
        The whole packet is bad and must have no effect; valid with ``last``.
    meta : ``meta``
        Side information; only with the parameter.
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
    """Connect ``source`` (out) to ``sink`` (in), whose payload layouts must be equal.

    :func:`amaranth.lib.wiring.connect` compares widths only and would connect two different layouts
    of the same width.

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
    """Register stage that cuts all combinational paths of a stream, those of ``ready`` too.

    Latency one cycle, throughput one word per cycle; stores up to two words.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.

    Members
    -------
    i, o : stream of ``shape``
        Words in, words out.
    following : ``shape``
        The word that follows that of ``o`` or, if it is not in here, that of ``i``.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)),
                          "following": Out(shape)})
        self._shape = shape

    def elaborate(self, platform):
        m = Module()
        spare = Signal(self._shape, reset_less=True)
        full = Signal()

        m.d.comb += [self.i.ready.eq(~full), self.following.eq(Mux(full, spare, self.i.payload))]
        # What comes is kept whether it is needed or not: `o.ready`, which is late, decides about
        # `full` alone.
        with m.If(~full):
            m.d.sync += spare.eq(self.i.payload)
        with m.If(self.o.ready | ~self.o.valid):
            with m.If(full):
                m.d.sync += [self.o.payload.eq(spare), self.o.valid.eq(1), full.eq(0)]
            with m.Else():
                m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        with m.Elif(self.i.valid):
            m.d.sync += full.eq(1)
        return m


class ForwardRegister(wiring.Component):
    """Register stage that cuts the combinational paths of a stream but for those of ``ready``.

    Latency one cycle, throughput one word per cycle. It stores one word, without the multiplexer
    that a :class:`Register` has in front of its flip-flops. ``i.ready`` depends combinationally on
    ``o.ready``.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.

    Members
    -------
    i, o : stream of ``shape``
        Words in, words out.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(self.o.ready | ~self.o.valid)
        with m.If(self.i.ready):
            m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        return m
