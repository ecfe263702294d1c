"""A queue whose packets wait for a judgement that is made elsewhere meanwhile."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.queue import PacketQueue, Queue
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect

__all__ = ["JudgedQueue"]


class JudgedQueue(wiring.Component):
    """A :class:`~dxpu.queue.PacketQueue` that asks a question about some packets and lets each of
    them out, or drops it, when the answer comes.

    A question is asked when its packet is stored whole, never about one that is removed. Packets
    leave in the order they came. Those behind one whose answer is due wait with it.

    Latency two cycles (of the queue), or one from the answer, which cannot come earlier than one or
    two cycles after the packet. Throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two.
    meta : shape-like
        Side information of the packets.
    question : shape-like
    questions : int
        Questions that can wait to be taken, at least. Latency is a cycle less with one or two.

    Members
    -------
    i : packet stream with ``meta``
    asks : 1
        There is a question about the packet on ``i``; looked at with its last beat.
    about : ``question``
        With ``asks``.
    question : stream of ``question``
    answer : stream of 1 bit
        To each question, in order, any time: 1 lets the packet out, 0 drops it.
    o : packet stream with ``meta``
    level : ``range(depth + 1)``
        Beats in memory.
    room : 1
        Less than half of everything is in use.
    """

    def __init__(self, width, *, depth, meta, question, questions=16):
        self._width = check_width(width)
        self._meta, self._depth = meta, depth
        self._question, self._questions = question, questions
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "asks": In(1),
            "about": In(question),
            "question": Out(stream.Signature(question)),
            "answer": In(stream.Signature(1)),
            "o": Out(PacketSignature(width, meta)),
            "level": Out(range(depth + 1)),
            "room": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        plain = [k for k, _ in PacketLayout(self._width)]
        m.submodules.packets = packets = PacketQueue(
            self._width, depth=self._depth,
            meta=data.StructLayout({"meta": self._meta, "asks": 1}))
        m.submodules.questions = questions = Queue(self._question, depth=self._questions)
        m.submodules.answers = answers = Queue(1, depth=2)
        connect(m, questions.o, wiring.flipped(self.question))
        connect(m, wiring.flipped(self.answer), answers.i)

        asking = i.p.last & self.asks & ~i.p.discard
        able = ~asking | questions.i.ready
        m.d.comb += [
            *(packets.i.p[k].eq(i.p[k]) for k in plain),
            packets.i.p.meta.meta.eq(i.p.meta),
            packets.i.p.meta.asks.eq(self.asks),
            packets.i.valid.eq(i.valid & able),
            i.ready.eq(packets.i.ready & able),
            questions.i.payload.eq(self.about),
            questions.i.valid.eq(i.valid & packets.i.ready & asking & ~packets.stat_overflow),
        ]

        waits, passes = packets.o.p.meta.asks, Signal()
        m.d.comb += [
            passes.eq(~waits | answers.o.valid & answers.o.payload),
            *(o.p[k].eq(packets.o.p[k]) for k in plain),
            o.p.meta.eq(packets.o.p.meta.meta),
            o.valid.eq(packets.o.valid & passes),
            packets.o.ready.eq(Mux(passes, o.ready, answers.o.valid)),
            answers.o.ready.eq(packets.o.valid & packets.o.ready & packets.o.p.last & waits),
            self.level.eq(packets.level),
        ]

        # Questions that are asked and not used up; what is behind the queues is not counted.
        open = Signal(range(2 * self._questions + 4))
        m.d.sync += [
            open.eq(open + (questions.i.valid & questions.i.ready)
                    - (answers.o.valid & answers.o.ready)),
            self.room.eq((packets.level < self._depth // 2) & (open < self._questions // 2)),
        ]
        return m
