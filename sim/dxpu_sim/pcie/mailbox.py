"""Mailbox between a PCIe model in Python and a TLP port in hardware; simulation only.

Python wakes up once per TLP, never per cycle: Python writes a whole TLP into wide registers and
toggles a request; the hardware sends the TLP beat by beat, and collects TLPs of the design in the
same way.

Every signal of :class:`MailboxSignature` must be a port of the simulation's top module, because VPI
sees nothing below the top: the top has a member ``In(MailboxSignature())`` for each mailbox,
connected to :attr:`TlpPort.py`. The Python end is :class:`dxpu_sim.pcie.ports.Mailbox`.
"""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, check_width

from .monitor import PacketMonitor

__all__ = ["CHUNKS", "CHUNK_BITS", "CLASSES", "MailboxSignature", "TlpPort"]

#: Width and number of the data registers: a TLP of up to 384 bytes is one transfer.
CHUNK_BITS = 1024
CHUNKS = 3
#: Largest number of dwords in one transfer.
TRANSFER_DWORDS = CHUNKS * CHUNK_BITS // 32
#: Traffic classes in the order of their numbers in ``rx_info`` and ``rx_stall``.
CLASSES = ("p", "np", "cpl")


class MailboxSignature(wiring.Signature):
    """Wires between Python and one :class:`TlpPort`, seen from Python.

    A TLP longer than one transfer takes several transfers, all but the last with ``end`` = 0.

    Members
    -------
    tx_data0, tx_data1, ... : 1024
        Bytes of the transfer to send, byte 0 least significant.
    tx_control : 9
        Bit 0 request (toggle), bit 1 end of the TLP, bits 8:2 dwords of this transfer.
    tx_gap, rx_gap : 8
        Share (of 256) of idle cycles between beats into the design, and of cycles in which no beat
        is taken from the design; pseudo-random.
    tx_accept : 1
        Follows the request when the data registers may be written again.
    tx_taken : 16
        Whole TLPs that the design has taken; changes together with ``tx_info``.
    tx_info : 64
        Cycles of the first (bits 31:0) and last (63:32) beat of the last TLP taken.
    rx_data0, rx_data1, ... : 1024
        Bytes of the transfer received.
    rx_count : 16
        Transfers received. Data and info must be read in the time step in which ``rx_count``
        changes.
    rx_info : 75
        Cycle of the TLP's first (bits 31:0) and of this transfer's last beat (63:32), dwords
        (70:64), class (72:71), end of TLP (73), discard (74).
    rx_broken : 12
        Sticky, four bits per class: stream rules broken by the design
        (:data:`dxpu_sim.pcie.monitor.RULES`).
    rx_stall : 3
        Per class: take no further TLP.
    link_up : 1
        The link of the PCIe side works.
    reset : 1
        The design requests a hot reset of the PCIe side.
    """

    def __init__(self):
        super().__init__({
            **{f"tx_data{n}": Out(CHUNK_BITS) for n in range(CHUNKS)},
            "tx_control": Out(9), "tx_gap": Out(8),
            "tx_accept": In(1), "tx_taken": In(16), "tx_info": In(64),
            **{f"rx_data{n}": In(CHUNK_BITS) for n in range(CHUNKS)},
            "rx_count": In(16), "rx_info": In(75), "rx_broken": In(12),
            "rx_stall": Out(3), "rx_gap": Out(8),
            "link_up": Out(1), "reset": In(1),
        })


class Gaps(wiring.Component):
    """Pseudo-random ``hold``, high in about ``share``/256 of the cycles; never if ``share`` is 0.

    The sequence goes on in cycles in which ``share`` is not 0.

    Parameters
    ----------
    init : int
        State of the 23-bit shift register after reset; not 0.
    """

    share: In(8)
    hold: Out(1)

    def __init__(self, init):
        super().__init__()
        self._init = init

    def elaborate(self, platform):
        m = Module()
        # x^23 + x^18 + 1, eight steps a cycle, so that successive cycles share no bits.
        state = Signal(23, init=self._init)
        bits = list(state)
        for _ in range(8):
            bits = [bits[22] ^ bits[17], *bits[:22]]
        # At rest while nobody asks, so that a port without traffic is (dxpu_sim.run.rest).
        with m.If(self.share.any()):
            m.d.sync += state.eq(Cat(bits))
        m.d.comb += self.hold.eq(state[:8] < self.share)
        return m


class Sender(wiring.Component):
    """Sends transfers written by Python as packets, in order.

    A buffer of 16 rows of 1024 bits holds the next TLP ready when a TLP ends. Throughput one beat
    per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    seed : int
        Start of the pseudo-random gaps.

    Members
    -------
    taken : 2
        A TLP's first beat (bit 0) and last beat (bit 1) is taken in this cycle.
    """

    def __init__(self, width, *, seed=1):
        super().__init__({
            "o": Out(PacketSignature(check_width(width))),
            **{name: flow for name, flow in MailboxSignature().flip().members.items()
               if name.startswith("tx_") and name != "tx_info"},
            "taken": Out(2),
        })
        self._width = width
        self._seed = seed

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = fifo.SyncFIFO(width=CHUNK_BITS + 7, depth=16)
        self._load(m, rows)
        self._stream(m, rows)
        return m

    def _load(self, m, rows):
        """Copy the chunks of a requested transfer into rows, one per cycle."""
        chunk = Signal(range(CHUNKS))
        left = Signal(range(-TRANSFER_DWORDS, TRANSFER_DWORDS + 1))
        lanes = CHUNK_BITS // 32
        final = Signal()
        data = Array(getattr(self, f"tx_data{n}") for n in range(CHUNKS))[chunk]

        m.d.comb += [
            left.eq(self.tx_control[2:9] - (chunk << lanes.bit_length() - 1)),
            final.eq(left <= lanes),
            rows.w_data.eq(Cat(data, Mux(final, left, lanes)[:6], final & self.tx_control[1])),
            rows.w_en.eq(self.tx_control[0] != self.tx_accept),
        ]
        with m.If(rows.w_en & rows.w_rdy):
            m.d.sync += chunk.eq(chunk + 1)
            with m.If(final):
                m.d.sync += [chunk.eq(0), self.tx_accept.eq(self.tx_control[0])]

    def _stream(self, m, rows):
        lanes = self._width // 32
        m.submodules.gaps = gaps = Gaps(self._seed)
        beat = Signal(range(CHUNK_BITS // self._width))
        first = Signal(init=1)
        offered = Signal()
        left = Signal(range(-CHUNK_BITS // 32, CHUNK_BITS // 32 + 1))
        end_of_row = Signal()
        o, row = self.o, rows.r_data

        m.d.comb += [
            gaps.share.eq(self.tx_gap),
            left.eq(row[CHUNK_BITS:CHUNK_BITS + 6] - beat * lanes),
            end_of_row.eq(left <= lanes),
            o.valid.eq(rows.r_rdy & (offered | ~gaps.hold)),
            o.p.data.eq(row[:CHUNK_BITS].word_select(beat, self._width)),
            o.p.dwords.eq(Mux(end_of_row, left, lanes)),
            o.p.first.eq(first),
            o.p.last.eq(end_of_row & row[-1]),
            rows.r_en.eq(o.valid & o.ready & end_of_row),
        ]
        # A beat that was offered must stay offered.
        m.d.sync += offered.eq(o.valid & ~o.ready)
        with m.If(o.valid & o.ready):
            m.d.sync += [beat.eq(Mux(end_of_row, 0, beat + 1)), first.eq(o.p.last)]
            m.d.comb += self.taken.eq(Cat(first, o.p.last))
            with m.If(o.p.last):
                m.d.sync += self.tx_taken.eq(self.tx_taken + 1)


class Receiver(wiring.Component):
    """Merges the three class streams of an egress and collects each TLP for Python.

    Whole TLPs are taken. The classes with a TLP that are not stalled are served in turn, so no
    class waits behind another. Throughput one beat per cycle; collected data is overwritten from
    the next cycle on.

    Parameters
    ----------
    width : int
        Data bits per beat.
    seed : int
        Start of the pseudo-random gaps.

    Members
    -------
    taken : 2
        A TLP's first beat (bit 0) and a transfer's last beat (bit 1) is taken in this cycle.
    about : 11
        Bits 74:64 of ``rx_info``.
    """

    def __init__(self, width, *, seed=1):
        super().__init__({
            **{f"i_{name}": In(PacketSignature(check_width(width))) for name in CLASSES},
            **{name: flow for name, flow in MailboxSignature().flip().members.items()
               if name.startswith("rx_") and name != "rx_info"},
            "taken": Out(2),
            "about": Out(11),
        })
        self._width = width
        self._seed = seed

    def elaborate(self, platform):
        m = Module()
        merged = stream.Signature(PacketSignature(self._width).members["payload"].shape).create()
        cls = self._merge(m, merged)
        self._collect(m, merged, cls)
        self._police(m)
        return m

    def _police(self, m):
        """Add a monitor to each output of the design."""
        broken = []
        for name in CLASSES:
            stream = getattr(self, f"i_{name}")
            m.submodules[f"monitor_{name}"] = monitor = PacketMonitor(stream.payload.shape())
            m.d.comb += [monitor.payload.eq(stream.payload), monitor.valid.eq(stream.valid),
                         monitor.ready.eq(stream.ready)]
            broken.append(monitor.broken)
        m.d.comb += self.rx_broken.eq(Cat(broken))

    def _merge(self, m, merged):
        """Connect one class to ``merged`` for a whole TLP at a time; return the number of the
        class."""
        m.submodules.gaps = gaps = Gaps(self._seed)
        inputs = [getattr(self, f"i_{name}") for name in CLASSES]
        choice, last, cls = Signal(2), Signal(2), Signal(2)
        inside = Signal()
        waiting = Signal(3)

        m.d.comb += [
            gaps.share.eq(self.rx_gap),
            waiting.eq(Cat(i.valid for i in inputs) & ~self.rx_stall),
            choice.eq(last),
            cls.eq(Mux(inside, last, choice)),
            merged.ready.eq(~gaps.hold),
        ]
        with m.Switch(last):
            for n in range(3):
                with m.Case(n):
                    order = [(n + k) % 3 for k in (1, 2, 3)]
                    for later in reversed(order):
                        with m.If(waiting[later]):
                            m.d.comb += choice.eq(later)
        with m.Switch(cls):
            for n, i in enumerate(inputs):
                with m.Case(n):
                    m.d.comb += [
                        merged.payload.eq(i.payload),
                        merged.valid.eq(i.valid & (inside | waiting[n])),
                        i.ready.eq(merged.ready & (inside | waiting[n])),
                    ]
        with m.If(merged.valid & merged.ready):
            m.d.sync += [last.eq(cls), inside.eq(~merged.p.last)]
        return cls

    def _collect(self, m, merged, cls):
        beats = CHUNK_BITS // self._width
        chunk = Signal(range(CHUNKS))
        beat = Signal(range(beats))
        dwords = Signal(7)
        complete = Signal()
        m.d.comb += complete.eq(merged.p.last | ((chunk == CHUNKS - 1) & (beat == beats - 1)))
        with m.If(merged.valid & merged.ready):
            with m.Switch(chunk):
                for n in range(CHUNKS):
                    with m.Case(n):
                        data = getattr(self, f"rx_data{n}")
                        m.d.sync += data.word_select(beat, self._width).eq(merged.p.data)
            m.d.sync += [beat.eq(beat + 1), dwords.eq(dwords + merged.p.dwords)]
            with m.If(beat == beats - 1):
                m.d.sync += [beat.eq(0), chunk.eq(chunk + 1)]
            m.d.comb += self.taken.eq(Cat(merged.p.first, complete))
            with m.If(complete):
                m.d.sync += [
                    beat.eq(0), chunk.eq(0), dwords.eq(0),
                    self.rx_count.eq(self.rx_count + 1),
                    self.about.eq(Cat((dwords + merged.p.dwords)[:7], cls,
                                      merged.p.last, merged.p.last & merged.p.discard)),
                ]


class TlpPort(wiring.Component):
    """Mailbox for one PCIe port of a design: one stream of TLPs in, one stream per class out.

    TLPs into the design keep their order. TLPs out of the design are taken whole, from the classes
    in turn; any class passes a stalled class. Nothing is dropped. Latency from a request to the
    first beat two cycles; throughput one beat per cycle in each direction.

    Parameters
    ----------
    width : int
        Data bits per beat.
    seed : int
        Start of the pseudo-random gaps.

    Members
    -------
    py : :class:`MailboxSignature`
        To be connected to ports of the simulation's top.
    o : stream of packets
        TLPs into the design.
    i_p, i_np, i_cpl : streams of packets
        TLPs out of the design: posted requests, non-posted requests, completions.
    link_up, reset : 1
        To and from the design, as in the mailbox.
    """

    def __init__(self, width, *, seed=1):
        super().__init__({
            "py": In(MailboxSignature()),
            "o": Out(PacketSignature(check_width(width))),
            **{f"i_{name}": In(PacketSignature(width)) for name in CLASSES},
            "link_up": Out(1),
            "reset": In(1),
        })
        self._width = width
        self._seed = seed

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = sender = Sender(self._width, seed=2 * self._seed % (1 << 23 - 1) + 1)
        m.submodules.receiver = receiver = Receiver(self._width,
                                                    seed=3 * self._seed % (1 << 23 - 1) + 1)
        cycle = Signal(32)
        m.d.sync += cycle.eq(cycle + 1)
        m.d.comb += [self.py.tx_info.eq(_times(m, sender, cycle)),
                     self.py.rx_info.eq(Cat(_times(m, receiver, cycle), receiver.about))]
        wiring.connect(m, wiring.flipped(self.o), sender.o)
        for name in CLASSES:
            wiring.connect(m, wiring.flipped(getattr(self, f"i_{name}")),
                           getattr(receiver, f"i_{name}"))
        for name, member in MailboxSignature().members.items():
            if name in ("tx_info", "rx_info"):
                continue
            inner = getattr({"tx": sender, "rx": receiver}.get(name[:2], self), name)
            outer = getattr(self.py, name)
            m.d.comb += inner.eq(outer) if member.flow == Out else outer.eq(inner)
        return m


def _times(m, end, cycle):
    """Cycles of the first and of the last beat that ``end`` says it has taken.

    The count is not in ``end``, which is at rest without a TLP (:mod:`dxpu_sim.run.rest`).
    """
    times = Signal(64)
    for half, taken in enumerate(end.taken):
        with m.If(taken):
            m.d.sync += times.word_select(half, 32).eq(cycle)
    return times
