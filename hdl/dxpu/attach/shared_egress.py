"""Queues to the PCIe ports of all slots, by class, in one memory.

Ref: PCIe Base 5.0, 2.4.1 (ordering), docs/explanation/order.md
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.memory import DisjointMemory
from dxpu.priority import Turns
from dxpu.rows import UNIT_BITS, ClassMeta
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width, connect
from dxpu.tlp.types import TlpClass

__all__ = ["ClassStreams", "SharedEgress"]

P, NP, CPL = (cls.value for cls in TlpClass)


def ClassStreams(width):
    """Packet streams ``p``, ``np``, ``cpl``: posted and non-posted requests, completions."""
    return wiring.Signature(dict.fromkeys(("p", "np", "cpl"), Out(PacketSignature(width))))


class SharedEgress(wiring.Component):
    """An :class:`~.egress.Egress` for each slot, whose queues are regions of one block RAM.

    A non-posted request or a completion is offered only after every posted request of its slot
    that came before it was taken whole. Within a slot and class the order is kept. TLPs are stored
    whole before they are offered. A stream that is not taken, even within a TLP, blocks no other.

    A TLP that ends with ``discard`` or is larger than its region is dropped. ``overflow`` says what
    happens to one whose region is full (of beats, or of ``packets`` TLPs): it waits, and all TLPs
    behind it, or it is dropped and counted, so that the input never waits for more than a cycle. A
    sender that sends no more than was ``released`` always finds room.

    Latency with empty queues: the first beat is offered six cycles after the last one was taken. A
    TLP that waited for a posted request is offered eight cycles after that was taken, and one later
    for each other such TLP. Throughput one beat per cycle in total, one beat in two cycles for a
    single stream; streams take turns by beats. After reset the input is held for up to eight cycles
    per slot.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
        Slots, 1 to 16.
    space : three int
        Bytes of the regions of a slot for posted requests, non-posted requests and completions;
        powers of two of at least two beats.
    packets : int
        Most TLPs in a region; a power of two.
    overflow : "wait" or "drop"
        What happens to a TLP whose region is full.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.rows.ClassMeta`
        TLPs of all slots; ``row`` is the index of the slot.
    slot : array of :func:`ClassStreams`
        TLPs to each slot.
    empty : ``slots``
        Bit n: no TLP of slot n is stored, and the releases of all were given.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Strobe: a TLP has left its region; ``life`` is 0.
    overflow : ``slots``
        Pulses: a TLP of slot n was dropped that was larger than its region, or found it full.
    """

    def __init__(self, width, *, slots, space=(2048, 1024, 2048), packets=64, overflow="wait"):
        if slots not in range(1, 17):
            raise ValueError(f"slots must be 1 to 16, not {slots!r}")
        beats = tuple(8 * size // check_width(width) for size in space)
        if len(beats) != 3 or any(n < 2 or n & (n - 1) for n in beats):
            raise ValueError(
                f"space must be three powers of two of at least two beats, not {space!r}")
        if not isinstance(packets, int) or packets < 2 or packets & (packets - 1):
            raise ValueError(f"packets must be a power of two of at least 2, not {packets!r}")
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "slot": Out(ClassStreams(width)).array(slots),
            "empty": Out(slots),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "overflow": Out(slots),
        })
        if overflow not in ("wait", "drop"):
            raise ValueError(f"overflow must be 'wait' or 'drop', not {overflow!r}")
        self._slots, self._wait = slots, overflow == "wait"
        #: Beats of a region, by class; most TLPs in a region.
        self.beats, self.packets = beats, packets
        self._stored = {k: PacketLayout(width)[k].shape for k in ("data", "dwords", "last")}
        self._slot_bits = max(1, (slots - 1).bit_length())
        #: A queue's number is the slot, and above it the class. A waiter is the queue of a class
        #: that may wait for posted requests; its number is counted from 0 again.
        self._queues, self._waiters = 3 << self._slot_bits, 2 << self._slot_bits

    def elaborate(self, platform):
        m = Module()
        place = max(self.beats).bit_length()
        packet = self.packets.bit_length()
        # Counters of beats and TLPs that passed, modulo twice the most that are stored.
        point = data.StructLayout({"place": place, "packets": packet})
        # A TLP is admitted before so many posted requests have left that the comparison wraps: its
        # queue gets turns, between two of which the other waiters have two each and one check takes
        # four cycles, while a posted request takes two to leave.
        stamp = (self.packets * (self._waiters + 4)).bit_length() + 1
        note = data.StructLayout({"beats": place, "older": stamp})

        # Regions follow each other, largest first, so each begins at a multiple of its size.
        depth, self._start = 0, [0] * 3
        for cls in sorted(range(3), key=lambda n: -self.beats[n]):
            self._start[cls], depth = depth, depth + self._slots * self.beats[cls]
        memories = {
            "memory": (data.StructLayout(self._stored), depth),
            # Of each non-posted request and completion: its size, and the older posted requests.
            "notes": (note, self._waiters * self.packets),
            "units": (UNIT_BITS, self._queues * self.packets),
            # Ends of what is stored whole, and of what may leave; beats and TLPs that have left.
            "tails": (point, self._queues),
            "limits": (point, self._waiters),
            "heads": (place, self._queues),
            "counts": (packet, self._queues),
        }
        for name, (shape, size) in memories.items():
            # A word is read only when it may leave; the others are LUT RAM, read in the same cycle.
            kind = DisjointMemory if name == "memory" else Memory
            m.submodules[name] = memories[name] = kind(shape=shape, depth=size, init=[])
            setattr(self, f"_{name}", memories[name])
        ports = {name: memories[name].write_port() for name in ("tails", "limits", "heads",
                                                                "counts")}
        self._write = ports

        clear_index, clearing = Signal(range(self._queues)), Signal(init=1)
        self._clearing = clearing
        # Of each queue: it has beats that may leave; beats of it between memory and PCIe (0, 1, 2).
        self._ready, self._becomes_ready = Signal(self._queues), Signal(self._queues)
        self._one, self._two = Signal(self._queues), Signal(self._queues)
        # Of each queue of non-posted requests or completions: it has TLPs that may not leave yet.
        self._pending, self._becomes_pending = Signal(self._waiters), Signal(self._waiters)
        # Of each slot: posted requests that were stored, and that were taken whole.
        self._posted_in = [Signal(stamp, name=f"posted_in{n}") for n in range(self._slots)]
        self._posted_out = [Signal(stamp, name=f"posted_out{n}") for n in range(self._slots)]
        self._posted_done = Signal(self._slots)   # strobes: a posted request was taken whole
        self._updating = Signal()                 # `limits` is being written
        self._admitted = Signal(self._waiters)    # strobes: one more TLP of a queue may leave
        self._input_empty = Signal(self._slots)   # no TLP is on the way into its region

        self._admit(m)
        self._store(m)
        self._fetch(m)
        with m.If(clearing):
            m.d.sync += [clear_index.eq(clear_index + 1),
                         clearing.eq(clear_index != self._queues - 1)]
            for port in ports.values():
                m.d.comb += [port.en.eq(1), port.addr.eq(clear_index),
                             Value.cast(port.data).eq(0)]
        return m

    def _read(self, memory, address, domain="comb"):
        port = memory.read_port(domain=domain)
        return port, port.addr.eq(address)

    def _address(self, slot, cls, place):
        """Address of beat ``place`` of a queue."""
        return Array([Cat(place[:n.bit_length() - 1], slot + self._start[c] // n)
                      for c, n in enumerate(self.beats)])[cls]

    def _is_full(self, cls, end, start):
        """Whether the beats between two places fill a region."""
        # Then the places differ in their top bit alone.
        least, other = min(self.beats), end ^ start
        above = [other[least.bit_length() - 1:n.bit_length()] == n // least for n in self.beats]
        return (other[:least.bit_length() - 1] == 0) & Array(above)[cls]

    def _no_posted(self):
        """By slot: every posted request that was stored was taken."""
        return Cat(a == b for a, b in zip(self._posted_in, self._posted_out, strict=True))

    def _posted_are_out(self, taken, older):
        """Whether ``older`` posted requests were taken."""
        return ~(taken - older)[len(older) - 1]

    def _wakes(self):
        """Waiters of a slot whose posted request is being taken."""
        return Cat(self._posted_done, C(0, (1 << self._slot_bits) - self._slots)).replicate(2)

    def _store(self, m):
        """Write TLPs into their regions."""
        m.submodules.stage = stage = Register(self.i.payload.shape())
        connect(m, wiring.flipped(self.i), stage.i)
        beat = stage.o.payload
        slot, cls = beat.meta.row[:self._slot_bits], Value.cast(beat.meta.cls)
        queue, waiter = Signal(range(self._queues)), Signal(range(self._waiters))
        tail, at_tail = self._read(self._tails, queue)
        head, at_head = self._read(self._heads, queue)
        count, at_count = self._read(self._counts, queue)
        new, write = self._write["tails"], self._memory.write_port()
        start, here, place = (Signal.like(head.data) for _ in range(3))
        m.d.comb += [
            queue.eq(Cat(slot, cls)), waiter.eq(Cat(slot, cls == CPL)), at_tail, at_head, at_count,
            start.eq(tail.data.place),
            here.eq(Mux(beat.first, start, place)),
            write.addr.eq(self._address(slot, cls, here)),
            *(write.data[k].eq(beat[k]) for k in self._stored),
            new.addr.eq(queue),
            new.data.place.eq(here + 1),
            new.data.packets.eq(tail.data.packets + 1),
        ]

        # A region is full, too, when a TLP is larger than it.
        full, larger, dropping, stored = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            full.eq(self._is_full(cls, here, head.data)
                    | ((tail.data.packets ^ count.data) == self.packets)),
            larger.eq(~beat.first & self._is_full(cls, here, start)),
            stage.o.ready.eq((~full & ~self._clearing) | dropping),
            write.en.eq(stage.o.valid & ~full & ~self._clearing & ~dropping),
            stored.eq(write.en & beat.last & ~beat.discard),
            new.en.eq(stored),
        ]
        with m.If(dropping):
            with m.If(stage.o.valid & beat.last):
                m.d.comb += self.overflow.eq(1 << slot)
                m.d.sync += dropping.eq(0)
        with m.Elif(stage.o.valid & ~self._clearing & (larger if self._wait else full)):
            m.d.sync += dropping.eq(1)
        with m.If(write.en):
            m.d.sync += place.eq(here + 1)

        # A cycle later.
        entry = Signal(data.StructLayout({
            "queue": len(queue), "waiter": len(waiter), "index": len(tail.data.packets) - 1,
            "beats": len(here), "units": UNIT_BITS, "new": new.data.shape()}), reset_less=True)
        entry_valid, ended = Signal(), Signal()
        m.d.sync += [
            entry_valid.eq(stored), ended.eq(stage.o.valid & stage.o.ready & beat.last),
            entry.queue.eq(queue), entry.waiter.eq(waiter), entry.index.eq(tail.data.packets[:-1]),
            entry.beats.eq(here + 1 - start), entry.units.eq(beat.meta.units),
            entry.new.eq(new.data),
        ]
        self._announce(m, entry, entry_valid)

        # At most two TLPs are on their way in, and one has just been stored.
        for n in range(self._slots):
            entering = Signal(2, name=f"entering{n}")
            begins = (self.i.valid & self.i.ready & self.i.payload.first
                      & (self.i.payload.meta.row == n))
            ends = ended & (entry.queue[:self._slot_bits] == n)
            m.d.sync += entering.eq(entering + begins - ends)
            m.d.comb += self._input_empty[n].eq(~entering.any())

    def _announce(self, m, entry, entry_valid):
        """Mark a stored TLP as ready, or as pending with its note."""
        note, units = self._notes.write_port(), self._units.write_port()
        no_posted, immediate = Signal(self._slots), Signal()
        slot, cls = entry.queue[:self._slot_bits], entry.queue[self._slot_bits:]
        limit_write, posted = self._write["limits"], cls == P
        m.d.comb += [
            note.en.eq(entry_valid & ~posted), units.en.eq(entry_valid),
            note.addr.eq(Cat(entry.index, entry.waiter)),
            units.addr.eq(Cat(entry.index, entry.queue)),
            units.data.eq(entry.units),
            note.data.beats.eq(entry.beats),
            note.data.older.eq(Array(self._posted_in)[slot]),
            # A TLP without older posted requests, alone in its queue, is ready at once.
            no_posted.eq(self._no_posted()),
            immediate.eq(no_posted.bit_select(slot, 1)
                         & ~self._pending.bit_select(entry.waiter, 1) & ~self._updating),
        ]
        with m.If(entry_valid):
            with m.If(posted | immediate):
                m.d.comb += self._becomes_ready.eq(1 << entry.queue)
            with m.Else():
                m.d.comb += self._becomes_pending.eq(1 << entry.waiter)
            with m.If(~posted & immediate):
                m.d.comb += [limit_write.en.eq(1), limit_write.addr.eq(entry.waiter),
                             limit_write.data.eq(entry.new)]
        for n, count in enumerate(self._posted_in):
            with m.If(entry_valid & posted & (slot == n)):
                m.d.sync += count.eq(count + 1)

    def _admit(self, m):
        """Admit pending TLPs whose older posted requests were taken."""
        m.submodules.waiting = turns = Turns(count=self._waiters)
        asleep, busy = Signal(self._waiters), Signal(self._waiters)
        m.d.comb += turns.requests.eq(self._pending & ~asleep & ~busy)

        # Address of the note.
        point, at_point = self._read(self._limits, turns.number)
        note = self._notes.read_port()
        m.d.comb += [at_point, note.addr.eq(Cat(point.data.packets[:-1], turns.number))]
        # The note, in two cycles for the sake of the block RAM's delay.
        read, valid = Signal.like(turns.number), Signal()
        waiter, note_read = Signal.like(turns.number), Signal.like(note.data)
        m.d.sync += [read.eq(turns.number), valid.eq(turns.valid),
                     waiter.eq(read), note_read.eq(note.data), self._updating.eq(valid)]

        slot = waiter[:self._slot_bits]
        limit_read, at_old = self._read(self._limits, waiter)
        tail, at_tail = self._read(self._tails, waiter + (1 << self._slot_bits))
        new, mine = self._write["limits"], Signal(self._waiters)
        allowed, last = Signal(), Signal()
        m.d.comb += [
            at_old, at_tail,
            mine.eq(Mux(self._updating, 1 << waiter, 0)),
            allowed.eq(self._posted_are_out(Array(self._posted_out)[slot], note_read.older)),
        ]
        with m.If(self._updating):
            m.d.comb += [
                new.en.eq(allowed), new.addr.eq(waiter),
                new.data.place.eq(limit_read.data.place + note_read.beats),
                new.data.packets.eq(limit_read.data.packets + 1),
                self._admitted.eq(Mux(allowed, mine, 0)),
                last.eq(allowed & (new.data.packets == tail.data.packets)),
            ]
        m.d.sync += [
            busy.eq((busy | turns.now) & ~mine),
            self._pending.eq(self._pending & ~Mux(last, mine, 0) | self._becomes_pending),
            # A posted request that was taken meanwhile may be the one that it waits for.
            asleep.eq((asleep | Mux(allowed, 0, mine)) & ~self._wakes()),
        ]

    def _fetch(self, m):
        """Read beats from the memory, and give the release of each TLP that has left."""
        m.submodules.beats = turns = Turns(count=self._queues)
        queue, slot_bits = turns.number, self._slot_bits
        slot, cls = queue[:slot_bits], queue[slot_bits:]
        m.d.comb += turns.requests.eq(self._ready & ~self._two & ~turns.chosen)
        head, at_head = self._read(self._heads, queue)
        tail, at_tail = self._read(self._tails, queue)
        limit, at_limit = self._read(self._limits, Cat(slot, cls == CPL))
        new, read = self._write["heads"], self._memory.read_port()
        drained = Signal()
        m.d.comb += [
            at_head, at_tail, at_limit,
            new.addr.eq(queue), new.data.eq(head.data + 1), new.en.eq(turns.valid),
            drained.eq(new.data == Mux(cls == P, tail.data.place, limit.data.place)),
            read.addr.eq(self._address(slot, cls, head.data)), read.en.eq(turns.valid),
        ]
        ready_waiters = Cat(C(0, 1 << slot_bits), self._admitted)
        m.d.sync += self._ready.eq(
            self._ready & ~Mux(drained, turns.chosen, 0) | self._becomes_ready | ready_waiters)

        arrived, number, ended, which = (Signal(), Signal.like(queue), Signal(),
                                         Signal.like(queue))
        arrives = Signal(self._queues)
        m.d.sync += [arrives.eq(turns.chosen), arrived.eq(turns.valid), number.eq(queue),
                     ended.eq(arrived & read.data.last), which.eq(number)]
        self._deliver(m, read.data, arrives, turns.now)

        count, at_count = self._read(self._counts, which)
        left, units = self._write["counts"], self._units.read_port()
        reported, row = Signal(self._slots), Signal(slot_bits)
        m.d.comb += [
            at_count, left.addr.eq(which), left.data.eq(count.data + 1), left.en.eq(ended),
            units.addr.eq(Cat(count.data[:-1], which)),
            self.released.row.eq(row), self.released.units.eq(units.data),
        ]
        m.d.sync += [self.released_strobe.eq(ended), row.eq(which),
                     self.released.cls.eq(which[slot_bits:])]
        m.d.comb += reported.eq(~(Mux(ended, 1 << which[:slot_bits], 0)
                              | Mux(self.released_strobe, 1 << row, 0)))
        for n in range(self._slots):
            mine = [n + (cls << slot_bits) for cls in range(3)]
            m.d.comb += self.empty[n].eq(
                self._input_empty[n] & reported[n]
                & ~Cat(*((self._ready[q], self._one[q], self._two[q]) for q in mine),
                       *(self._pending[q] for q in mine[:2])).any())

    def _deliver(self, m, beat, arrives, picked):
        """Pass beats from the memory to the streams of the slots."""
        for q in range(self._queues):
            n, cls = q % (1 << self._slot_bits), q >> self._slot_bits
            if n >= self._slots:
                continue
            name = ("p", "np", "cpl")[cls]
            out = getattr(self.slot[n], name)
            m.submodules[f"{name}{n}"] = stage = Register(beat.shape())
            first, takes = Signal(init=1, name=f"first_{name}{n}"), Signal(name=f"takes_{name}{n}")
            one, two = self._one[q], self._two[q]
            m.d.comb += [
                stage.i.payload.eq(beat), stage.i.valid.eq(arrives[q]),
                *(out.payload[k].eq(stage.o.payload[k]) for k in self._stored),
                out.payload.first.eq(first),
                out.valid.eq(stage.o.valid), stage.o.ready.eq(out.ready),
                takes.eq(out.valid & out.ready),
            ]
            with m.If(takes):
                m.d.sync += first.eq(out.payload.last)
            with m.If(picked[q] & ~takes):
                m.d.sync += [one.eq(1), two.eq(one)]
            with m.Elif(~picked[q] & takes):
                m.d.sync += [one.eq(two), two.eq(0)]
            if cls == P:
                m.d.comb += self._posted_done[n].eq(takes & out.payload.last)
                with m.If(self._posted_done[n]):
                    m.d.sync += self._posted_out[n].eq(self._posted_out[n] + 1)
