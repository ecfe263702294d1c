"""Counters of event pulses, with totals in a block RAM, and a table of their states in another."""

from functools import reduce
from operator import xor

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from dxpu.priority import one_hot_mux

from .description import Access, Block, Field, Register
from .port import RegisterPort

__all__ = ["CounterBank", "counter_block"]


#: Bits of a shift register to its taps for maximal length, counted from 1 (Xilinx XAPP 052,
#: table 3).
TAPS = {4: (4, 3), 5: (5, 3), 6: (6, 5), 7: (7, 6), 8: (8, 6, 5, 4), 9: (9, 5), 10: (10, 7),
        11: (11, 9), 12: (12, 6, 4, 1)}
#: Most events of a bank: the accumulators must not wrap between two visits.
MOST = ((1 << max(TAPS)) - 2 - 8) // 2
#: Cycles from one read to the next, at least. A round is so much longer at most, and a bit more
#: would cost as much in every accumulator.
_REST = 8


def _new_bit(state):
    """Bit to shift in below ``state``, bits from the lowest up; all ones is never reached."""
    return reduce(xor, (state[tap - 1] for tap in TAPS[len(state)])) ^ 1


def _sequence(bits):
    """States of a shift register in counting order, from 0 on."""
    state, states = [0] * bits, []
    while not states or any(state):
        states.append(sum(bit << n for n, bit in enumerate(state)))
        state = [_new_bit(state), *state[:-1]]
    return states


def counter_block(name, events, doc=""):
    """Description of a bank of counters: one read-only register per event, in order.

    ``events`` maps the name of each to its text, which may be empty.
    """
    return Block(name, tuple(
        Register(event, (Field("count", 32, Access.RO, doc=text),), text)
        for event, text in events.items()), doc)


class CounterBank(wiring.Component):
    """A 32-bit counter for each of many event pulses, readable as registers.

    Each event has a small accumulator. A token visits one accumulator per cycle, whose count is
    added to a total in a memory, so a counter costs few flip-flops. Accumulators are linear
    feedback shift registers, which need no carry; a table translates their states to numbers. No
    pulse is lost. A pulse is in its total at most ``2 * max(events, 8) + 9`` cycles later. Reset
    clears all counters; requests wait until it has. A write, and an address without a counter, is
    answered with ``error``.

    A response is offered three cycles after its request was taken; one request at a time, and the
    next one is taken eight cycles later at the earliest.

    Parameters
    ----------
    block : Block
        Description by :func:`counter_block`.
    saturate : bool
        Counters stay at 0xFFFFFFFF; else they wrap.

    Members
    -------
    bus : In :class:`RegisterPort`
        Totals.
    pulse.<event> : In(1)
        Counts one for every cycle in which it is 1.
    """

    def __init__(self, block, *, saturate=False):
        if not isinstance(block, Block) or any(p.rows or p.address != 4 * n
                                               for n, p in enumerate(block.placed)):
            raise TypeError(f"Description must be made by counter_block, not {block!r}")
        self.block = block
        self._names = [p.register.name for p in block.placed]
        if len(self._names) not in range(1, MOST + 1):
            raise ValueError(f"A counter bank must have 1 to {MOST} events, not {len(self._names)}")
        self._saturate = bool(saturate)
        super().__init__({
            "bus": In(RegisterPort()),
            "pulse": In(wiring.Signature({name: wiring.Out(1) for name in self._names})),
        })

    def elaborate(self, platform):
        m = Module()
        count = len(self._names)
        # A round takes `slots` steps, and reads steal one cycle of `_REST` in a row at most. A slot
        # must not be visited again before its total is in the memory.
        slots = max(count, 8)
        top = (slots + 1) * _REST // (_REST - 1) + 1
        m.submodules.totals = totals = self._totals = Memory(shape=32, depth=slots, init=[])
        read, write = totals.read_port(), totals.write_port()

        # Step 0: the token visits a slot; its accumulator is cleared and its total is read.
        steal = Signal()
        token, index, fresh = Signal(slots, init=1), Signal(range(slots)), Signal(init=1)
        bits = max(min(TAPS), (top + 1).bit_length())  # a register has one state less than numbers
        accumulators = [Signal(bits, name=f"accumulator_{name}") for name in self._names]
        # Many pulses are known late in a cycle.
        pulses = Signal(count)
        m.d.sync += pulses.eq(Cat(getattr(self.pulse, name) for name in self._names))
        for bit, pulse, accumulator in zip(token, pulses, accumulators, strict=False):
            # As a visit loads nothing but 0, it is the synchronous reset of the flip-flops, and the
            # pulse their enable. A pulse during the visit goes straight to the total.
            with m.If(bit & ~steal):
                m.d.sync += accumulator.eq(0)
            with m.Elif(pulse):
                m.d.sync += accumulator.eq(Cat(_new_bit(accumulator), accumulator[:-1]))
        with m.If(~steal):
            m.d.sync += [token.eq(token.rotate_left(1)), index.eq(index + 1)]
            with m.If(token[-1]):
                m.d.sync += [index.eq(0), fresh.eq(0)]
        word = Signal(range(slots))
        m.d.comb += read.addr.eq(Mux(steal, word, index))

        # Steps 1 to 3: total, sum, write. The first round after reset ignores the memory.
        live = Signal(3)
        place = {state: n for n, state in enumerate(_sequence(bits))}
        m.submodules.numbers = numbers = Memory(
            shape=bits, depth=1 << bits, init=[place.get(n, 0) for n in range(1 << bits)],
            attrs={"rom_style": "block", "ram_style": "block"})
        state, added = Signal(bits), numbers.read_port()
        during = Signal(2)  # a pulse came during the visit: one step ago, two steps ago
        slot = [Signal(range(slots), name=f"slot_{n}") for n in range(3)]
        ignore, total, result = Signal(), Signal(32), Signal(32)
        m.d.sync += [
            live.eq(Cat(~steal, live)), ignore.eq(fresh),
            state.eq(one_hot_mux(token[:count], accumulators)),
            during.eq(Cat((token[:count] & pulses).any(), during)),
            slot[0].eq(index), slot[1].eq(slot[0]), slot[2].eq(slot[1]),
            total.eq(Mux(ignore, 0, read.data)),
        ]
        m.d.comb += added.addr.eq(state)
        # The lowest bits make the carry into the sum.
        carry = (Cat(C(1, 1), total) + Cat(during[1], added.data))[1:]
        m.d.sync += result.eq(Mux(carry[32] & self._saturate, 0xffff_ffff, carry[:32]))
        m.d.comb += [write.en.eq(live[2]), write.addr.eq(slot[2]), write.data.eq(result)]

        # The last totals of the first round are in the memory three steps after it.
        starting = Signal(4, init=15)
        m.d.sync += starting.eq(Cat(fresh, starting))
        self._serve(m, steal, word, starting.any(), read.data)
        return m

    def _serve(self, m, steal, word, starting, found):
        """Respond to requests; each steals one step of a round."""
        request, answer = self.bus.request, self.bus.response.p
        error, rest = Signal(), Signal(range(_REST))
        with m.If(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += request.ready.eq(~starting & (rest == 0))
                m.d.sync += [
                    word.eq(request.p.address[2:]),
                    error.eq(request.p.write | request.p.address[:2].any()
                             | (request.p.address[2:] >= len(self._names))),
                ]
                with m.If(request.valid & request.ready):
                    m.d.sync += rest.eq(_REST - 1)
                    m.next = "Read"
            with m.State("Read"):
                m.d.comb += steal.eq(1)
                m.next = "Wait"
            with m.State("Wait"):
                m.d.sync += [answer.data.eq(Mux(error, 0, found)), answer.error.eq(error)]
                m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.bus.response.valid.eq(1)
                with m.If(self.bus.response.ready):
                    m.next = "Idle"
