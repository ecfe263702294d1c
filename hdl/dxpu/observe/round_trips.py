"""Histograms of times, such as the round trips of requests to slots, in a block RAM."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.csr import Access, Field, Register, Rows
from dxpu.memory import DisjointMemory
from dxpu.priority import first_one
from dxpu.queue import Queue
from dxpu.switch.tracking.types import TIME_BITS

__all__ = ["BINS", "RoundTrips", "histogram_rows", "round_trip_rows", "stage_rows"]

#: Bins of a histogram, of twice the width each.
BINS = 16
#: Words of a slot: its bins, then these.
_SUM_LOW, _SUM_HIGH, _LONGEST = BINS, BINS + 1, BINS + 2
_WORDS = 32
#: Round trips that may wait.
_WAITING = 16


def _word(name, doc, access=Access.MEM):
    return Register(name, (Field("value", 32, access, doc=doc),), doc)


def histogram_rows(name: str, count: int, unit: int, each: str, doc: str, *,
                   address: int | None = None) -> Rows:
    """Description of registers of :class:`RoundTrips`; ``unit``: cycles of a unit of time.

    ``each`` says what is timed, such as "Requests whose round trip took".
    """
    bins = [f"less than {2 * unit} cycles", *(
        f"{unit << n} to {(unit << n + 1) - 1} cycles" for n in range(1, BINS - 1)),
        f"{unit << BINS - 1} cycles or more"]
    units = f"in units of {unit} cycles" if unit > 1 else "in cycles"
    return Rows(name, count, (
        *(_word(f"bin{n}", f"{each} {text}.") for n, text in enumerate(bins)),
        _word("sum_low", f"Sum of all times {units}, bits 31:0. Read `sum_high` before and after."),
        _word("sum_high", "The same, bits 63:32."),
        _word("longest", f"Longest time {units}. Written: what it is taken to be.", Access.MEM_HW),
    ), f"{doc} Totals since reset; they wrap.", stride=4 * _WORDS, address=address)


def round_trip_rows(ports: int, unit: int) -> Rows:
    """Description of the round trips of each slot; they must be the first of their block."""
    return histogram_rows(
        "round_trip", ports, unit, "Requests whose round trip took",
        "Round trips of requests to the slot of a downstream port, from when the request may leave "
        "until its last completion has come.")


def stage_rows(rows: int, *, role: str, receive: int) -> tuple[Rows, Rows]:
    """Descriptions of both stages of each row; ``receive`` is the byte address of the second."""
    near = "the host's PCIe port" if role == "host" else "the buffer of a slot"
    return (
        histogram_rows("send", rows, 1, "TLPs that took", f"TLPs on their way from {near} into a "
                       "frame, of those that were watched.", address=0),
        histogram_rows("receive", rows, 1, "TLPs that took", "TLPs on their way from the last "
                       "beat of their frame to the queue of the PCIe port, of those that were "
                       "watched.", address=receive),
    )


class RoundTrips(wiring.Component):
    """Sorts round trips into histograms, and sums them up, slot by slot.

    Bin 0 has times below 2 units, bin n those from 2**n to 2**(n + 1) - 1, the last one all that
    are longer. A round trip is noted within 16 cycles if no other waits, one in every 13 cycles at
    most; 16 may wait, and what finds no room is counted. The memory is cleared in the cycles after
    a reset; meanwhile nothing is noted or answered.

    Parameters
    ----------
    ports : int
        Slots, or rows of any kind, 1 to 128.

    Members
    -------
    i : {strobe, slot, time}
    address, request, write, write_data, read_data, done
        Access to a word, as of :class:`~dxpu.csr.RegisterFile` without its ``mem_``: the request is
        held until ``done``. Byte address, from that of the rows.
    stat_missed : 1
        Pulse.
    """

    def __init__(self, *, ports):
        if not isinstance(ports, int) or not 1 <= ports <= 128:
            raise ValueError(f"ports must be 1 to 128, not {ports!r}")
        self._slots = 1 << (ports - 1).bit_length()
        super().__init__({
            "i": In(data.StructLayout({"strobe": 1, "slot": 7, "time": TIME_BITS})),
            "address": In(16), "request": In(1), "write": In(1), "write_data": In(32),
            "read_data": Out(32), "done": Out(1),
            "stat_missed": Out(Counted(
                "Round trips that are in no histogram, as too many waited.")),
        })

    def elaborate(self, platform):
        m = Module()
        depth = self._slots * _WORDS
        m.submodules.queue = queue = Queue(
            data.StructLayout({"slot": range(self._slots), "time": TIME_BITS}), depth=_WAITING)
        m.submodules.words = words = DisjointMemory(shape=32, depth=depth, init=[])
        read, write = words.read_port(), words.write_port()
        # The word at work: its address, and its next value.
        place, value = Signal(range(depth)), Signal(32)
        trip, step = queue.o.p, Signal(2)
        m.d.comb += [
            queue.i.valid.eq(self.i.strobe),
            queue.i.p.slot.eq(self.i.slot), queue.i.p.time.eq(self.i.time),
            self.stat_missed.eq(self.i.strobe & ~queue.i.ready),
            read.en.eq(0), read.addr.eq(place), write.addr.eq(place), write.data.eq(value),
            self.read_data.eq(read.data),
        ]
        of_trip = Cat(self._word(m, step, trip.time), trip.slot)
        with m.FSM():
            with m.State("Clear"):  # `value` is 0 after a reset
                m.d.comb += write.en.eq(1)
                m.d.sync += place.eq(place + 1)
                with m.If(place == depth - 1):
                    m.next = "Idle"
            with m.State("Idle"):
                with m.If(self.request):
                    m.d.sync += [place.eq(self.address[2:]), value.eq(self.write_data)]
                    m.next = "Access"
                with m.Elif(queue.o.valid):
                    m.d.sync += place.eq(of_trip)
                    m.next = "Read"
            with m.State("Access"):
                m.d.comb += [read.en.eq(~self.write), write.en.eq(self.write)]
                m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"
            with m.State("Read"):
                m.d.comb += read.en.eq(1)
                m.next = "Change"
            with m.State("Change"):
                self._change(m, value, read.data, step, trip.time)
                m.d.sync += step.eq(step + 1)
                m.next = "Write"
            with m.State("Write"):
                m.d.comb += write.en.eq(1)
                m.d.sync += place.eq(of_trip)
                m.next = "Read"
                with m.If(step == 0):
                    m.d.comb += queue.o.ready.eq(1)
                    m.next = "Idle"
        return m

    def _word(self, m, step, time):
        """Word of a slot that a step changes: the time's bin, the sum's halves, the longest."""
        highest_first = Cat(time[BINS - 1:].any(), *reversed(time[1:BINS - 1]), C(1, 1))
        word = Signal(range(_WORDS))
        with m.Switch(step):
            with m.Case(0):
                m.d.comb += word.eq(~first_one(highest_first) & (BINS - 1))
            for n, other in enumerate((_SUM_LOW, _SUM_HIGH, _LONGEST), start=1):
                with m.Case(n):
                    m.d.comb += word.eq(other)
        return word

    def _change(self, m, value, old, step, time):
        """What a step makes of the word."""
        added, carry = Signal(TIME_BITS), Signal()
        m.d.comb += added.eq(Mux(step == 0, 1, Mux(step == 1, time, carry)))
        total = old + added
        m.d.sync += [value.eq(Mux(step == 3, Mux(old < time, time, old), total)),
                     carry.eq(total[32])]
