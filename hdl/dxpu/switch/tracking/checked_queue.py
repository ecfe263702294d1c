"""A queue whose packets wait for a judgement that is made elsewhere meanwhile."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.info_queue import InfoQueue
from dxpu.queue import Queue
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect

__all__ = ["JudgedQueue"]


class JudgedQueue(wiring.Component):
    """An :class:`~dxpu.info_queue.InfoQueue` that asks a question about some packets and lets each
    of them out, or drops it, when the answer comes.

    A question is asked when its packet is stored whole, never about one that is removed; with
    ``complete`` when its first beat is. While there is no room for questions, that beat of any
    packet waits. Packets leave in the order
    they came, their information and their beats each at its own pace. Those behind one whose answer
    has not come wait with it. A packet that is refused is dropped when the beats of those before it
    have left.

    Latency that of the queue, or none from the answer, which cannot come earlier than one cycle
    after the packet. Throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two.
    info : shape-like
        Information about a packet.
    packets : int
        Packets whose information can wait.
    question : shape-like
    questions : int
        Questions that can wait to be taken, at least.
    complete : bool
        Every packet that begins ends without ``discard``, and fits the queue.

    Members
    -------
    i : packet stream
    i_info : ``info``
        Information about the packet on ``i``; sampled with its last beat.
    asks : 1
        There is a question about the packet on ``i``; sampled with its last beat, and, with
        ``complete``, the same on its first.
    about : ``question``
        With ``asks``.
    question : stream of ``question``
    answer : stream of 1 bit
        To each question, in order, any time: 1 lets the packet out, 0 drops it.
    info : stream of ``info``
    early : 1
        The payload of ``info`` is that of the next packet, which is not refused so far.
    keep : 1
        A packet that is refused stays, and ``info`` with it.
    beats : packet stream
    level : ``range(depth + 1)``
        Beats in memory.
    empty : 1
        No beat is inside.
    room : 1
        Less than half of everything is in use.
    """

    #: Packets whose information may leave before their beats.
    AHEAD = 15

    def __init__(self, width, *, depth, info, question, packets=16, questions=16,
                 complete=False):
        self._packets = InfoQueue(
            check_width(width), depth=depth, packets=packets,
            info=data.StructLayout({"info": info, "asks": 1}))
        self._questions = Queue(question, depth=questions, direct=True)
        self._complete = complete
        self._limits = depth // 2, packets // 2, questions // 2
        # Questions that wait, and up to three behind the queues.
        self._open = range(2 * questions + 4)
        super().__init__({
            "i": In(PacketSignature(width)),
            "i_info": In(info),
            "asks": In(1),
            "about": In(question),
            "question": Out(stream.Signature(question)),
            "answer": In(stream.Signature(1)),
            "info": Out(stream.Signature(info)),
            "early": Out(1),
            "keep": In(1),
            "beats": Out(PacketSignature(width)),
            "level": Out(range(depth + 1)),
            "empty": Out(1),
            "room": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.i
        m.submodules.packets = packets = self._packets
        m.submodules.questions = questions = self._questions
        m.submodules.answers = answers = _Latch()
        connect(m, questions.o, wiring.flipped(self.question))
        connect(m, wiring.flipped(self.answer), answers.i)

        when = i.p.first if self._complete else i.p.last
        asking = when & self.asks & ~i.p.discard
        able = ~when | questions.i.ready
        m.d.comb += [
            packets.i.payload.eq(i.payload),
            packets.i_info.info.eq(self.i_info),
            packets.i_info.asks.eq(self.asks),
            packets.i.valid.eq(i.valid & able),
            i.ready.eq(packets.i.ready & able),
            questions.i.payload.eq(self.about),
            questions.i.valid.eq(i.valid & packets.i.ready & asking & ~packets.stat_overflow),
        ]

        # Packets whose information has left but not all of their beats; -1: the other way round.
        # At 0 the next information and the next beat are of the same packet.
        head, beats = packets.info, packets.beats
        ahead, aligned = Signal(range(-1, self.AHEAD + 1)), Signal()
        passes, refused = Signal(), Signal()
        info_leaves, packet_leaves, dropped = Signal(), Signal(), Signal()
        m.d.comb += [
            aligned.eq(ahead == 0),
            passes.eq(head.valid & (~head.p.asks | answers.o.valid & answers.o.payload)),
            refused.eq(head.valid & head.p.asks & answers.o.valid & ~answers.o.payload & aligned
                       & ~self.keep),
            self.early.eq(head.valid & ~(head.p.asks & answers.o.valid & ~answers.o.payload)),
            self.info.payload.eq(head.p.info),
            self.info.valid.eq(passes & (ahead != self.AHEAD)),
            *(self.beats.p[k].eq(beats.p[k]) for k, _ in PacketLayout(len(i.p.data))),
            self.beats.valid.eq(beats.valid & ((ahead > 0) | aligned & passes)),
            beats.ready.eq(refused | self.beats.valid & self.beats.ready),
            info_leaves.eq(self.info.valid & self.info.ready),
            packet_leaves.eq(self.beats.valid & self.beats.ready & beats.p.last),
            dropped.eq(refused & beats.valid & beats.p.last),
            head.ready.eq(info_leaves | dropped),
            answers.o.ready.eq(head.ready & head.p.asks),
            self.level.eq(packets.level),
            self.empty.eq((packets.level == 0) & ~beats.valid),
        ]
        m.d.sync += ahead.eq(ahead + info_leaves - packet_leaves)

        # Questions that are asked and not used up; what is behind the queues is not counted.
        beats_half, infos_half, questions_half = self._limits
        open = Signal(self._open)
        m.d.sync += [
            open.eq(open + (questions.i.valid & questions.i.ready)
                    - (answers.o.valid & answers.o.ready)),
            self.room.eq((packets.level < beats_half) & (packets.infos < infos_half)
                         & (open < questions_half)),
        ]
        return m


class _Latch(wiring.Component):
    """Keeps a bit that is not taken in the cycle in which it comes. Latency none.

    ``i.ready`` does not depend on ``o.ready``. Throughput one bit in two cycles, or one per cycle
    while each is taken at once.
    """

    i: In(stream.Signature(1))
    o: Out(stream.Signature(1))

    def elaborate(self, platform):
        m = Module()
        kept, bit = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~kept),
            self.o.valid.eq(kept | self.i.valid),
            self.o.payload.eq(Mux(kept, bit, self.i.payload)),
        ]
        m.d.sync += [kept.eq(self.o.valid & ~self.o.ready), bit.eq(self.o.payload)]
        return m
