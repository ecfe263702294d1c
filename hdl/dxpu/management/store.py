"""Words of management in one block RAM that is as wide as a beat."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.memory import DisjointMemory
from dxpu.stream import check_width

__all__ = ["BANK_WORDS", "Bank", "WordAddress", "WordStore"]

#: Words of a bank.
BANK_WORDS = 128


class Bank(enum.Enum, shape=3):
    """Parts of the store."""

    #: Of manager numbers 1 to 4: what is kept for each.
    RECORD0 = 0
    RECORD1 = 1
    RECORD2 = 2
    RECORD3 = 3
    #: Frames that came.
    CAME0 = 4
    CAME1 = 5
    #: The frame that is sent.
    OUT = 6
    #: All else.
    GLOBAL = 7


#: Bits of the number of a word: its place in its bank, and the bank.
WordAddress = exact_log2(len(Bank) * BANK_WORDS)


class WordStore(wiring.Component):
    """A thousand words of 32 bits, eight banks of 128, for who takes them by words or by beats.

    A beat has its first word in the lowest bits, and begins at a multiple of its words. Beats are
    written a cycle after they are put, from a register: who writes words waits for that register
    alone. Nobody reads beats while another reads words, and nobody reads what is written in the
    same cycle.

    Parameters
    ----------
    width : int
        Data bits of a beat.

    Members
    -------
    put, put_at, put_beat : 1, 10, ``width``
        Strobe: a beat is written in the next cycle. ``put_at`` is the number of its first word.
    get, get_at : 1, 10
        A beat is read, and is there in the next cycle.
    beat : ``width``
    write, write_at, write_word, write_ready : 1, 10, 32, 1 out
        A word is written, if no beat is in this cycle.
    read, read_at : 1, 10
        Strobe: a word is read.
    word : 32
        It, from the next cycle until something else is read.
    """

    def __init__(self, width):
        check_width(width)
        self._width = width
        super().__init__({
            "put": In(1), "put_at": In(WordAddress), "put_beat": In(width),
            "get": In(1), "get_at": In(WordAddress), "beat": Out(width),
            "write": In(1), "write_at": In(WordAddress), "write_word": In(32),
            "write_ready": Out(1),
            "read": In(1), "read_at": In(WordAddress), "word": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        bits = exact_log2(lanes)
        m.submodules.memory = memory = DisjointMemory(
            shape=self._width, depth=len(Bank) * BANK_WORDS // lanes, init=[])
        write, read = memory.write_port(granularity=32), memory.read_port()
        lane = Signal(range(lanes))
        puts, put_at, put_beat = Signal(), Signal(WordAddress), Signal(self._width)
        m.d.sync += [puts.eq(self.put), put_at.eq(self.put_at), put_beat.eq(self.put_beat)]
        m.d.comb += [
            self.write_ready.eq(~puts),
            write.addr.eq(Mux(puts, put_at, self.write_at) >> bits),
            write.data.eq(Mux(puts, put_beat, self.write_word.replicate(lanes))),
            write.en.eq(Mux(puts, ~Const(0, lanes), Mux(
                self.write, 1 << self.write_at[:bits] if bits else 1, 0))),
            read.addr.eq(Mux(self.get, self.get_at, self.read_at) >> bits),
            read.en.eq(self.get | self.read),
            self.beat.eq(read.data), self.word.eq(read.data.word_select(lane, 32)),
        ]
        with m.If(self.read):
            m.d.sync += lane.eq(self.read_at[:bits] if bits else 0)
        return m
