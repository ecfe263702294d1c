"""Does what a request says: all of it, or nothing.

Ref: docs/reference/management.md
"""

from typing import NamedTuple

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.crypto.aes import swapped
from dxpu.csr import RegisterPort

from .format import ANSWER_BYTES, OPERATIONS_MAX, PLAIN_BYTES_MAX, WORDS_MAX, Code, Status

__all__ = ["Directory", "Operations"]

#: Words of an answer before those that were read, and of the longest answer.
_FIRST, _WORDS = ANSWER_BYTES // 4, PLAIN_BYTES_MAX // 4


class Directory(NamedTuple):
    """The registers of a node.

    Members
    -------
    registers : dict from int to bool
        Byte addresses, and whether the register can be written.
    fence_epoch : int
        Address of the register with the node's epoch.
    """

    registers: dict[int, bool]
    fence_epoch: int


class _Part(enum.Enum, shape=3):
    """What the next word of the request is."""

    EPOCH = 0
    COUNT = 1
    OPERATION = 2
    ADDRESS = 3
    WORD = 4  # to be written
    NOTHING = 5  # there is no word: registers are read


class Operations(wiring.Component):
    """Checks all operations of a request, then does them, and writes the answer.

    The check looks each address up in a table of the registers that there are; no register notices
    it. A request to read one register takes 31 cycles and to write one 35, if the registers answer
    in the next cycle; each register more takes 7 or 9.

    Parameters
    ----------
    directory : callable
        Gives the :class:`Directory` when the gateware is made: counters of management are among the
        registers.

    Members
    -------
    start, words : 1, 7
        Strobe: there is a request of so many words.
    read, request_at, word : 1, 7, 32 in
        That word of the request, from the next cycle until another one is read.
    write, answer_at, write_word, write_ready : 1, 7, 32, 1 in
        That word of the answer.
    bus : :class:`~dxpu.csr.RegisterPort`
    done : 1
        Strobe: the answer is there.
    size : 7
        Words of it.
    wrote : 1
        Something was written, with the epoch of the request; until the next ``start``.
    """

    def __init__(self, directory):
        self._directory = directory
        super().__init__({
            "start": In(1), "words": In(7),
            "read": Out(1), "request_at": Out(7), "word": In(32),
            "write": Out(1), "answer_at": Out(7), "write_word": Out(32), "write_ready": In(1),
            "bus": Out(RegisterPort()),
            "done": Out(1), "size": Out(7), "wrote": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        registers, fence_epoch = self._directory()
        depth = 1 << (max(registers) // 4).bit_length()
        m.submodules.directory = directory = Memory(shape=2, depth=depth, init=[
            (1 | writable << 1) if (writable := registers.get(4 * n)) is not None else 0
            for n in range(depth)])
        look = directory.read_port()
        bus, request, answer = self.bus, self.bus.request.p, self.bus.response.p
        part, at, value = Signal(_Part), Signal(7), Signal(32)
        acts = Signal()  # the check is over
        mine, theirs = Signal(32), Signal(32)  # epoch of the request, of the node
        number, left = Signal(8), Signal(8)  # of this operation, from 0; operations after it
        writes, address, count = Signal(), Signal(17), Signal(7)
        any_writes, reads = Signal(), Signal(12)
        bad, where, status = Signal(), Signal(8), Signal(Status)
        odd = Signal()  # the word before says what no request does
        natural = swapped(self.word)
        epoch_access, epoch_write = Signal(), Signal()
        m.d.comb += [
            look.addr.eq(address[2:]), self.request_at.eq(at),
            request.address.eq(Mux(epoch_access, fence_epoch, address[:16])),
            request.write.eq(Mux(epoch_access, epoch_write, writes)),
            request.data.eq(Mux(epoch_access, mine, value)),
        ]
        beyond = address[2 + exact_log2(depth):] != 0
        fine = look.data[0] & (look.data[1] | ~writes) & ~beyond & (address[:2] == 0)

        def refuse():
            m.d.sync += [status.eq(Status.REFUSED), where.eq(0)]
            m.next = "Epoch again"

        def next_word():
            """Behind a word: the next one, or the next operation, or the end."""
            m.d.sync += [address.eq(address + 4), count.eq(count - 1)]
            m.next = "Get"
            with m.If(count == 1):
                m.d.sync += [part.eq(_Part.OPERATION), number.eq(number + 1), left.eq(left - 1)]
                with m.If(left == 1):
                    m.next = "End"

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [
                    at.eq(0), part.eq(_Part.EPOCH), acts.eq(0), any_writes.eq(0), reads.eq(0),
                    bad.eq(0), odd.eq(0), self.size.eq(_FIRST),
                ]
                with m.If(self.start):
                    m.d.sync += self.wrote.eq(0)
                    m.next = "Epoch"
            with m.State("Epoch"):
                m.d.comb += [epoch_access.eq(1), bus.request.valid.eq(1)]
                with m.If(bus.request.ready):
                    m.next = "Epoch is"
            with m.State("Epoch is"):
                m.d.comb += bus.response.ready.eq(1)
                m.d.sync += theirs.eq(answer.data)
                with m.If(bus.response.valid):
                    m.next = "Get"
            with m.State("Get"):
                m.d.comb += self.read.eq(1)
                m.next = "Got"
                with m.If(part == _Part.NOTHING):
                    m.next = "Look"
                with m.Elif((at == self.words) | odd):
                    refuse()
            with m.State("Got"):
                m.d.sync += [at.eq(at + 1), value.eq(natural), odd.eq(0)]
                m.next = "Get"
                with m.Switch(part):
                    with m.Case(_Part.EPOCH):
                        m.d.sync += [mine.eq(natural), part.eq(_Part.COUNT)]
                    with m.Case(_Part.COUNT):
                        m.d.sync += [left.eq(self.word[:8]), number.eq(0),
                                     part.eq(_Part.OPERATION),
                                     odd.eq((self.word[8:] != 0) | (self.word[:8] == 0)
                                            | (self.word[:8] > OPERATIONS_MAX))]
                    with m.Case(_Part.OPERATION):
                        m.d.sync += [writes.eq(self.word[0]), count.eq(self.word[8:15]),
                                     part.eq(_Part.ADDRESS),
                                     odd.eq((self.word[:8] > max(Code)) | (self.word[16:] != 0)
                                            | (self.word[8:16] == 0)
                                            | (self.word[8:16] > WORDS_MAX))]
                        with m.If(self.word[0]):
                            m.d.sync += any_writes.eq(1)
                        with m.Elif(~acts):
                            m.d.sync += reads.eq(reads + self.word[8:16])
                    with m.Case(_Part.ADDRESS):
                        m.d.sync += [address.eq(Mux(natural[16:] != 0, 1 << 16, natural[:16])),
                                     part.eq(Mux(writes, _Part.WORD, _Part.NOTHING))]
                    with m.Case(_Part.WORD):
                        m.next = "Look"
            with m.State("Look"):
                m.next = "Looked"
                with m.If(acts):
                    m.next = "Ask"
            with m.State("Looked"):
                with m.If(~fine & ~bad):
                    m.d.sync += [bad.eq(1), where.eq(number)]
                next_word()
            with m.State("Ask"):
                m.d.comb += bus.request.valid.eq(1)
                with m.If(bus.request.ready):
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += [
                    self.write.eq(bus.response.valid & ~writes), self.answer_at.eq(self.size),
                    self.write_word.eq(swapped(answer.data)),
                    bus.response.ready.eq(writes | self.write_ready),
                ]
                with m.If(bus.response.valid & bus.response.ready):
                    m.d.sync += self.size.eq(self.size + ~writes)
                    next_word()
            with m.State("End"):
                m.d.sync += [status.eq(Status.DONE), where.eq(number)]
                with m.If(acts):
                    m.next = "Epoch again"
                with m.Elif((at != self.words) | (reads > _WORDS - _FIRST)
                            | any_writes & (mine == 0)):
                    refuse()
                with m.Elif(any_writes & (mine < theirs)):
                    m.d.sync += [status.eq(Status.STALE), where.eq(0)]
                    m.next = "Epoch again"
                with m.Elif(bad):
                    m.d.sync += [status.eq(Status.ADDRESS), where.eq(where)]
                    m.next = "Epoch again"
                with m.Else():
                    m.d.sync += [at.eq(0), part.eq(_Part.EPOCH), acts.eq(1),
                                 self.wrote.eq(any_writes)]
                    m.next = "Get"
                    with m.If(any_writes & (mine != theirs)):
                        m.next = "Raise"
            with m.State("Raise"):
                m.d.comb += [epoch_access.eq(1), epoch_write.eq(1), bus.request.valid.eq(1)]
                with m.If(bus.request.ready):
                    m.next = "Raised"
            with m.State("Raised"):
                m.d.comb += bus.response.ready.eq(1)
                with m.If(bus.response.valid):
                    m.next = "Get"
            with m.State("Epoch again"):
                m.d.comb += [epoch_access.eq(1), bus.request.valid.eq(1)]
                with m.If(bus.request.ready):
                    m.next = "Say epoch"
            with m.State("Say epoch"):
                m.d.comb += [
                    self.write.eq(bus.response.valid), self.answer_at.eq(0),
                    self.write_word.eq(swapped(answer.data)),
                    bus.response.ready.eq(self.write_ready),
                ]
                with m.If(bus.response.valid & bus.response.ready):
                    m.next = "Say status"
            with m.State("Say status"):
                m.d.comb += [self.write.eq(1), self.answer_at.eq(1),
                             self.write_word.eq(Cat(where, Cat(status, Const(0, 8))[:8]))]
                with m.If(self.write_ready):
                    m.d.comb += self.done.eq(1)
                    m.next = "Idle"
        return m
