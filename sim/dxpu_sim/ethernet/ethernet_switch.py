"""An Ethernet switch for simulations: learns, floods, queues and delays like a real switch.

The whole switch runs in one 125 MHz domain, at a byte per cycle and port; no Python runs per cycle.
"""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu.ethernet.gmii import GAP, MINIMUM, PREAMBLE, SFD, GmiiReceive, GmiiSignature, GmiiTransmit

__all__ = ["EthernetSwitch"]

#: Bytes per row of the frame memory, and bits of a position in a row. Rows are wide because each
#: row costs a line of Verilog.
ROW = 32
POSITION = 5
#: Rows of the address table; DXF addresses are spread by their node number.
TABLE = 1024
#: Largest frame with FCS that a port accepts.
LARGEST = 16_000
#: Totals of each port; see :class:`EthernetSwitch`.
TOTALS = ("rx_frames", "rx_bytes", "rx_bad", "rx_dropped", "rx_filtered", "tx_frames", "tx_bytes",
          "tx_overflow")


def _crc_table():
    """Step of the FCS by one byte (802.3, 3.2.9), in reflected form."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    return table


#: Residue of the reflected CRC after a frame with its FCS.
RESIDUE = 0xDEBB20E3


class Arrival(data.Struct):
    """A frame received by a port: its place in memory, and the fields for forwarding."""

    #: First row in the port's part of the memory; not wrapped at the end, so that age shows.
    start: 24
    #: Bytes with FCS.
    length: 14
    #: Cycle of the first byte, and the first cycle after the frame.
    began: 32
    ended: 32
    destination: 48
    source: 48
    bad: 1


class Departure(data.Struct):
    """A frame in the queue of an output."""

    port: 4
    start: 24
    length: 14
    #: Earliest cycle of departure.
    release: 32


class Input(wiring.Component):
    """Receive side of a port: writes rows of the frame memory, checks the FCS, reports arrivals."""

    gmii: In(GmiiTransmit())
    now: In(32)
    #: Write port of the frame memory.
    row: Out(24)
    word: Out(8 * ROW)
    write: Out(1)
    arrival: Out(Arrival)
    pending: Out(1)
    taken: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = memory.Memory(shape=32, depth=256, init=_crc_table())
        step = table.read_port(domain="comb")

        byte, carrier = self.gmii.txd, self.gmii.tx_en
        active, armed, failed = Signal(), Signal(init=1), Signal()
        length, start, began = Signal(14), Signal(24), Signal(32)
        crc, word, header = Signal(32), Signal(8 * ROW), Signal(96)
        position, shift = length[:POSITION], Signal(POSITION + 3)

        m.d.comb += [
            step.addr.eq(crc[:8] ^ byte),
            shift.eq((ROW - position) << 3),
            self.write.eq(active & Mux(carrier, position == ROW - 1, position != 0)),
            self.word.eq(Mux(carrier, Cat(word[8:], byte), word >> shift)),
        ]
        m.d.sync += [
            armed.eq(~carrier | (byte == PREAMBLE)),
            self.row.eq(self.row + self.write),
        ]
        with m.If(self.taken):
            m.d.sync += self.pending.eq(0)
        with m.If(~active):
            m.d.sync += failed.eq(carrier & (failed | self.gmii.tx_er))
            with m.If(carrier & armed & (byte == SFD)):
                m.d.sync += [
                    active.eq(1), length.eq(0), start.eq(self.row), began.eq(self.now + 1),
                    crc.eq(~0),
                ]
        with m.Elif(carrier):
            m.d.sync += [
                length.eq(length + 1), word.eq(Cat(word[8:], byte)),
                crc.eq((crc >> 8) ^ step.data), failed.eq(failed | self.gmii.tx_er),
            ]
            with m.If(length < 12):
                m.d.sync += header.eq(Cat(header[8:], byte))
            with m.If(length == LARGEST):
                m.d.sync += [length.eq(LARGEST), failed.eq(1)]
        with m.Else():
            m.d.sync += [
                active.eq(0), failed.eq(0), self.pending.eq(1),
                self.arrival.start.eq(start), self.arrival.length.eq(length),
                self.arrival.began.eq(began), self.arrival.ended.eq(self.now),
                Cat(self.arrival.destination, self.arrival.source).eq(header),
                self.arrival.bad.eq(failed | (length < MINIMUM + 4) | (crc != RESIDUE)),
            ]
        return m


class Output(wiring.Component):
    """Transmit side of a port: a queue of departures, sent with preamble and gap."""

    gmii: In(GmiiReceive())
    now: In(32)
    entry: In(Departure)
    push: In(1)
    #: Frame that is being sent: place of the next byte.
    port: Out(4)
    row: Out(24)
    word: In(8 * ROW)
    #: The memory no longer holds the first frame of the queue.
    stale: In(1)
    start: Out(24)
    sent: Out(1)
    length: Out(14)
    overflow: Out(1)
    #: The queue has no place for ``entry``.
    full: Out(1)
    #: Limit of waiting bytes; waiting bytes now, and their maximum so far.
    room: In(24)
    waiting: Out(24)
    peak: Out(24)

    def __init__(self, *, depth):
        super().__init__()
        self._depth = depth

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = memory.Memory(shape=Departure, depth=self._depth, init=[])
        w_port, r_port = queue.write_port(), queue.read_port(domain="comb")
        head, tail = Signal(range(2 * self._depth)), Signal(range(2 * self._depth))
        full, first = self.full, r_port.data
        m.d.comb += [
            full.eq(((tail - head)[:len(head)] == self._depth)
                    | (self.waiting + self.entry.length > self.room)),
            w_port.addr.eq(tail), w_port.data.eq(self.entry), w_port.en.eq(self.push & ~full),
            r_port.addr.eq(head),
            self.port.eq(first.port), self.start.eq(first.start),
        ]
        m.d.sync += tail.eq(tail + w_port.en)
        with m.If(self.push & full):
            m.d.comb += self.overflow.eq(1)

        gone = Signal()  # the first frame leaves the queue
        m.d.sync += self.waiting.eq(self.waiting + Mux(w_port.en, self.entry.length, 0)
                                    - Mux(gone, first.length, 0))
        with m.If(self.waiting > self.peak):
            m.d.sync += self.peak.eq(self.waiting)

        count = Signal(14)
        age = Signal(32)
        m.d.comb += [
            age.eq(self.now - first.release),
            self.row.eq(first.start + (count >> POSITION)),
            self.length.eq(first.length),
        ]
        m.d.sync += [self.gmii.rx_dv.eq(0), self.gmii.rxd.eq(0), count.eq(count + 1)]
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += count.eq(0)
                with m.If((head != tail) & ~age[-1]):
                    with m.If(self.stale):
                        m.d.comb += [self.overflow.eq(1), gone.eq(1)]
                        m.d.sync += head.eq(head + 1)
                    with m.Else():
                        m.next = "Preamble"
            with m.State("Preamble"):
                m.d.sync += [
                    self.gmii.rx_dv.eq(1), self.gmii.rxd.eq(Mux(count == 7, SFD, PREAMBLE)),
                ]
                with m.If(count == 7):
                    m.d.sync += count.eq(0)
                    m.next = "Data"
            with m.State("Data"):
                m.d.sync += [
                    self.gmii.rx_dv.eq(1),
                    self.gmii.rxd.eq(self.word >> (count[:POSITION] << 3)),
                ]
                with m.If(count == first.length - 1):
                    m.d.comb += [self.sent.eq(1), gone.eq(1)]
                    m.d.sync += [count.eq(0), head.eq(head + 1)]
                    m.next = "Gap"
            with m.State("Gap"):
                with m.If(count == GAP - 2):
                    m.next = "Idle"
        return m


class EthernetSwitch(wiring.Component):
    """Store-and-forward switch with a fixed delay.

    A frame leaves every port of its destination unchanged, as soon as that port is free and
    ``delay`` cycles have passed since the frame's end. ``delay`` is the time from the first cycle
    without TX_EN at the entry to the first preamble byte at the exit. The order between two ports
    is kept.

    Addresses of ``nodes`` go to their port. Other addresses are learned from source addresses; the
    table is indexed by the low 10 bits of the address, so two addresses may displace each other.
    Broadcast, multicast and unknown addresses go to all ports except the entry. Bad frames (FCS,
    TX_ER, size) end here, as does a frame whose destination is at its entry. A frame is lost, and
    counted, only if a port's queue is full (of frames, or of ``room`` bytes) or if the memory was
    overwritten before the frame could leave.

    Parameters
    ----------
    ports : int
        2 to 16.
    nodes : dict of int to int
        Node number to port, for the addresses ``02:44:58:PP:NN:NN``.
    path : int
        PP in these addresses.
    queue : int
        Frames that may wait at each output; a power of two.
    memory_bytes : int
        Memory of each input; a power of two. Holds the last bytes received.
    seed : int
        Seed of random losses.

    Members
    -------
    port0, port1, ... : In(GmiiSignature())
        Each to be connected to the ``gmii`` of a MAC.
    delay : In(16)
        Cycles; at least ``ports`` + 4.
    drop0, drop1, ... : In(16)
        Fault: total number of good frames to be dropped at this entry since reset. An increment by
        one loses the next frame.
    loss : In(16)
        Fault: probability that a good frame is dropped, in 1/65536.
    dead : In(1)
        Fault: all frames are dropped.
    room : In(24)
        Bytes that may wait at each output, including the frame being sent; no limit if not set.
    port0_rx_frames, ... : Out(32)
        Totals of each port: ``rx_frames`` and ``rx_bytes`` (good, with FCS), ``rx_bad``,
        ``rx_dropped`` (by fault), ``rx_filtered`` (destination at the entry), ``tx_frames``,
        ``tx_bytes``, ``tx_overflow`` (lost, no room).
    port0_peak, ... : Out(24)
        Maximum of waiting bytes at each output so far.
    tap_toggle : Out(1)
        Inverted for each frame that ended at an entry, including bad and dropped frames.
    tap : Out(Arrival), tap_port : Out(4), tap_age : Out(32), tap_dropped : Out(1)
        That frame, its entry, cycles since its first byte (after the start frame delimiter) was on
        the wire, and whether a fault has dropped it. The bytes of the frame are in the memory
        ``frames`` of this module, from row ``tap_row`` on, 32 per row.
    tap_full : Out(ports)
        Outputs of its destination whose queue had no place for that frame.
    tap_row : Out(range(rows))
    """

    def __init__(self, *, ports, nodes=None, path=0, queue=256, memory_bytes=32768,
                 seed=1):
        if not isinstance(ports, int) or not 2 <= ports <= 16:
            raise ValueError(f"ports must be an integer from 2 to 16, not {ports!r}")
        for name, size in (("queue", queue), ("memory_bytes", memory_bytes)):
            if not isinstance(size, int) or size < 2 or size & (size - 1):
                raise ValueError(f"{name} must be a power of two, not {size!r}")
        nodes = dict(nodes or {})
        for node, port in nodes.items():
            if not 0 <= node < 4096 or not 0 <= port < ports:
                raise ValueError(f"nodes must map node numbers to ports, not {node!r} to {port!r}")
        if len({node % TABLE for node in nodes}) < len(nodes):
            raise ValueError(f"nodes must differ modulo {TABLE}")
        self._ports, self._queue, self._rows = ports, queue, memory_bytes // ROW
        self._nodes, self._path, self._seed = nodes, path, seed
        members = {"delay": In(16), "loss": In(16), "dead": In(1), "room": In(24, init=0xFFFFFF),
                   "tap_toggle": Out(1), "tap": Out(Arrival), "tap_port": Out(4),
                   "tap_age": Out(32), "tap_dropped": Out(1),
                   "tap_full": Out(ports),
                   "tap_row": Out(range(ports * self._rows))}
        for n in range(ports):
            members |= {f"port{n}": In(GmiiSignature()), f"drop{n}": In(16),
                        f"port{n}_peak": Out(24)}
            members |= {f"port{n}_{name}": Out(32) for name in TOTALS}
        super().__init__(members)

    def _table(self):
        """Make the address table with the fixed addresses; return the memory and its row layout."""
        layout = data.StructLayout({"address": 48, "port": 4, "valid": 1, "fixed": 1})
        init = [{"address": 0, "port": 0, "valid": 0, "fixed": 0} for _ in range(TABLE)]
        for node, port in self._nodes.items():
            address = bytes([0x02, 0x44, 0x58, self._path]) + node.to_bytes(2, "big")
            init[node % TABLE] = {"address": int.from_bytes(address, "little"), "port": port,
                                  "valid": 1, "fixed": 1}
        return memory.Memory(shape=layout, depth=TABLE, init=init)

    def elaborate(self, platform):
        m = Module()
        count = range(self._ports)
        now = Signal(32)
        m.d.sync += now.eq(now + 1)
        m.submodules.frames = frames = memory.Memory(
            shape=8 * ROW, depth=self._ports * self._rows, init=[])
        inputs, outputs = [Input() for _ in count], [Output(depth=self._queue) for _ in count]
        for n, (entry, leave) in enumerate(zip(inputs, outputs, strict=True)):
            m.submodules[f"input{n}"] = entry
            m.submodules[f"output{n}"] = leave
            port = getattr(self, f"port{n}")
            connect(m, flipped(port.tx), entry.gmii)
            connect(m, flipped(port.rx), leave.gmii)
            w_port, r_port = frames.write_port(), frames.read_port(domain="comb")
            m.d.comb += [
                entry.now.eq(now), leave.now.eq(now),
                w_port.addr.eq(n * self._rows + entry.row % self._rows),
                w_port.data.eq(entry.word), w_port.en.eq(entry.write),
                r_port.addr.eq(leave.port * self._rows + leave.row % self._rows),
                leave.word.eq(r_port.data),
                leave.room.eq(self.room),
                getattr(self, f"port{n}_peak").eq(leave.peak),
            ]
            written = Signal(24)
            with m.Switch(leave.port):
                for k in count:
                    with m.Case(k):
                        m.d.comb += written.eq(inputs[k].row - leave.start)
            m.d.comb += leave.stale.eq(written > self._rows - 2)
            self._total(m, n, "tx_frames", leave.sent)
            self._total(m, n, "tx_bytes", Mux(leave.sent, leave.length, 0))
            self._total(m, n, "tx_overflow", leave.overflow)
        self._forward(m, now, inputs, outputs)
        return m

    def _total(self, m, port, name, amount):
        total = getattr(self, f"port{port}_{name}")
        m.d.sync += total.eq(total + amount)

    def _forward(self, m, now, inputs, outputs):
        """Handle one entry per cycle, in turn: look up, learn, queue, count, show to the tap."""
        turn = Signal(range(self._ports))
        m.d.sync += turn.eq(Mux(turn == self._ports - 1, 0, turn + 1))
        m.submodules.table = table = self._table()
        find, check, learn = (table.read_port(domain="comb"), table.read_port(domain="comb"),
                              table.write_port())
        arrival, pending, dropping = Signal(Arrival), Signal(), Signal()
        # A Galois shift register; frames are far enough apart for independent draws.
        draw, unlucky = Signal(32, init=0x9E3779B9 * (2 * self._seed + 1) & 0xFFFFFFFF), Signal()
        m.d.sync += draw.eq(draw >> 1 ^ Mux(draw[0], 0xA3000000, 0))
        m.d.comb += unlucky.eq(self.dead | (draw[:16] < self.loss))
        mask, own = Signal(self._ports), Signal(self._ports)
        good, everyone = Signal(), Signal()

        def index(address):
            return Cat(address[40:48], address[32:36])[:10]

        m.d.comb += [
            own.eq(1 << turn), good.eq(pending & ~arrival.bad),
            find.addr.eq(index(arrival.destination)), check.addr.eq(index(arrival.source)),
            learn.addr.eq(check.addr),
            learn.data.address.eq(arrival.source), learn.data.port.eq(turn),
            learn.data.valid.eq(1),
            learn.en.eq(good & ~check.data.fixed & ~arrival.source[0]),
            everyone.eq(arrival.destination[0] | ~find.data.valid
                        | (find.data.address != arrival.destination)),
            mask.eq(Mux(everyone, ~0, 1 << find.data.port) & ~own),
        ]
        for n, (entry, leave) in enumerate(zip(inputs, outputs, strict=True)):
            dropped = getattr(self, f"port{n}_rx_dropped")
            due = Signal(16, name=f"due{n}")
            m.d.comb += due.eq(getattr(self, f"drop{n}") - dropped)
            with m.If(turn == n):
                m.d.comb += [
                    arrival.eq(entry.arrival), pending.eq(entry.pending), entry.taken.eq(pending),
                    dropping.eq((due != 0) & ~due[-1] | unlucky),
                ]
            mine = pending & (turn == n)
            self._total(m, n, "rx_bad", mine & arrival.bad)
            self._total(m, n, "rx_dropped", mine & ~arrival.bad & dropping)
            self._total(m, n, "rx_filtered", mine & good & ~dropping & (mask == 0))
            self._total(m, n, "rx_frames", mine & good)
            self._total(m, n, "rx_bytes", Mux(mine & good, arrival.length, 0))
            m.d.comb += [
                leave.push.eq(good & ~dropping & mask[n]),
                leave.entry.port.eq(turn), leave.entry.start.eq(arrival.start),
                leave.entry.length.eq(arrival.length),
                # Two cycles from the decision to the first byte on the wire.
                leave.entry.release.eq(arrival.ended + self.delay - 2),
            ]
        with m.If(pending):
            m.d.sync += [
                self.tap_toggle.eq(~self.tap_toggle), self.tap.eq(arrival), self.tap_port.eq(turn),
                self.tap_age.eq(now + 1 - arrival.began),
                self.tap_dropped.eq(~arrival.bad & dropping),
                self.tap_full.eq(Cat(leave.push & leave.full for leave in outputs)),
                self.tap_row.eq(turn * self._rows + arrival.start % self._rows),
            ]
