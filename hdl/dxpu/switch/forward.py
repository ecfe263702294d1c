"""The way of the beats: where the verdict says."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout, PacketSignature, check_width
from dxpu.switch.errors.header_log import HeaderCapture
from dxpu.switch.errors.types import ErrorKind, ErrorRecord, HeaderReader

from .types import Answer, Target, Verdict

__all__ = ["Forwarder"]


class Forwarder(wiring.Component):
    """Sends each TLP where its verdict says, or nowhere; changes type 1 to type 0 if told so.

    One verdict for each TLP, in the order of the TLPs. Latency none, throughput one beat per cycle.
    An answer is offered with the last beat, and behind it the record of a verdict that has a note.
    The next TLP that has a note ends a cycle after that record is taken, at the earliest; whoever
    takes records must not let them wait for anything slow.

    Parameters
    ----------
    width : int
        Data bits per beat.
    targets : tuple of tuples of :class:`Target`
        All the targets that verdicts may name, but ``NOWHERE``; those of one stream together.

    Members
    -------
    i : packet stream
    verdict : stream of :class:`Verdict`
    o : array of packet streams with :class:`Verdict`
        One for each tuple in ``targets``.
    answer : stream of :class:`Answer`
    error : stream of :class:`ErrorRecord`
    headers : :class:`~.errors.types.HeaderReader`
        Of the TLPs in records.
    """

    def __init__(self, width, targets):
        self._width = check_width(width)
        self._targets = targets
        super().__init__({
            "i": In(PacketSignature(width)),
            "verdict": In(stream.Signature(Verdict)),
            "o": Out(PacketSignature(width, Verdict)).array(len(targets)),
            "answer": Out(stream.Signature(Answer)),
            "error": Out(stream.Signature(ErrorRecord)),
            "headers": In(HeaderReader()),
        })

    def elaborate(self, platform):
        m = Module()
        i, verdict = self.i, self.verdict.p
        lanes = self._width // 32

        # The header starts behind the prefixes; bit 0 of its byte 0 tells type 1 from type 0.
        end = 7 // lanes + 1  # behind the last beat that may hold a header dword
        beat = Signal(range(end + 1))
        edited = Signal.like(i.p.data)
        m.d.comb += edited.eq(i.p.data)
        for lane in range(lanes):
            here = verdict.to_type0 & (verdict.prefix_dwords == beat * lanes + lane)
            with m.If(here):
                m.d.comb += edited[32 * lane].eq(0)

        taken, both = Signal(), Signal()
        m.d.comb += [
            # That a record is taken is known late.
            both.eq(i.valid & self.verdict.valid & ~(
                verdict.note.exists & i.p.last & self.error.valid)),
            self.answer.p.port.eq(verdict.source),
            self.answer.p.life.eq(verdict.life),
            self.answer.p.completion.eq(verdict.completion),
            i.ready.eq(taken),
            self.verdict.ready.eq(taken & i.p.last),
        ]
        for targets, o in zip(self._targets, self.o, strict=True):
            chosen = Cat(verdict.target == target for target in targets).any()
            m.d.comb += [
                *(o.p[k].eq(i.p[k]) for k, _ in PacketLayout(self._width) if k != "data"),
                o.p.data.eq(edited),
                o.p.meta.eq(verdict),
                o.valid.eq(both & chosen),
            ]
            with m.If(chosen):
                m.d.comb += taken.eq(both & o.ready)
        with m.If(verdict.target == Target.NOWHERE):
            answering = verdict.respond & i.p.last
            m.d.comb += [
                self.answer.valid.eq(both & answering),
                taken.eq(both & (~answering | self.answer.ready)),
            ]
        with m.If(taken):
            m.d.sync += beat.eq(Mux(i.p.last, 0, Mux(beat == end, beat, beat + 1)))
        self._record(m, verdict, taken, beat)
        return m

    def _record(self, m, verdict, taken, beat):
        """Keep the note, and the header if a port reports something."""
        note, record = verdict.note, self.error
        m.submodules.capture = capture = HeaderCapture(self._width)
        wiring.connect(m, wiring.flipped(self.headers), capture.reader)
        m.d.comb += [
            capture.data.eq(self.i.p.data),
            capture.beat.eq(beat),
            capture.prefixed.eq(verdict.prefix_dwords.any()),
            capture.strobe.eq(taken & note.exists & (note.kind != ErrorKind.NONE)),
            capture.last.eq(self.i.p.last),
        ]
        with m.If(record.ready):
            m.d.sync += record.valid.eq(0)
        with m.If(taken & note.exists & self.i.p.last):
            m.d.sync += [
                record.valid.eq(1),
                record.p.note.eq(note),
                record.p.kept.eq(capture.kept),
                record.p.slot.eq(capture.slot),
                record.p.prefix_dwords.eq(verdict.prefix_dwords),
            ]
