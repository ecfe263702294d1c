"""Reads and writes registers by lines of text."""

from amaranth import *
from amaranth.lib import crc, enum, stream, wiring
from amaranth.lib.crc.catalog import CRC16_CCITT_FALSE
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort

__all__ = ["Console"]


class _Part(enum.Enum, shape=3):
    """Part of a line to which the last character belongs."""

    NOTHING = 0
    COMMAND = 1
    SPACE = 2  # an address follows
    ADDRESS = 3
    GAP = 4  # data follow
    DATA = 5
    TAIL = 6  # spaces behind
    SUM = 7



class Console(wiring.Component):
    """Executes register accesses given as lines of text, one line at a time.

    ======================  =========================  ==========================================
    line                    answer
    ======================  =========================  ==========================================
    ``r 0010``              ``= 0010 fff00fff*SSSS``   the register's value
    ``w 0010 00000005``     ``= 0010 00000005*SSSS``   written
    of no such register     ``! 0010*SSSS``            nothing was changed
    of anything else        ``?*SSSS``                 the whole line was dropped
    ======================  =========================  ==========================================

    Numbers are hexadecimal, in either case. An address has one to four digits, data one to eight.
    One or more spaces separate the parts. A line ends with CR or LF; empty lines are ignored, so CR
    LF works as well.

    ``*`` and four digits at the end of a line are the CRC-16 of all characters before (polynomial
    0x1021, initial value 0xFFFF, not reflected: CRC-16/CCITT-FALSE), and are checked. The CRC is
    optional for ``r`` and ``w``, the commands for people, and mandatory for ``R`` and ``W``, the
    commands for programs. Answers always have the CRC, and end with CR LF.

    Characters that come during an answer, up to a cycle after its last character was taken, are
    lost. All lines that lost characters are answered by one ``?`` behind that answer. A sender that
    waits for each answer loses nothing; a sender that does not wait gets the ``?``.

    Latency: one cycle from the response of the register to the first character of the answer.

    Members
    -------
    i : In(8), i_valid : In(1)
        Received characters.
    o : Out stream of 8 bits
        Characters to be sent.
    bus : Out :class:`~dxpu.csr.RegisterPort`
    stat_refused : Out(1)
        One cycle for each ``?``.
    """

    i: In(8)
    i_valid: In(1)
    o: Out(stream.Signature(8))
    bus: Out(RegisterPort())
    stat_refused: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.heard = heard = crc.Processor(CRC16_CCITT_FALSE(data_width=8))
        part, write, strict, bad = Signal(_Part), Signal(), Signal(), Signal()
        address, value, given = Signal(16), Signal(32), Signal(16)
        count = Signal(range(9))
        #: ``lost``: characters of a line that has not ended are lost. ``owed``: a ``?`` is due.
        lost, owed = Signal(), Signal()
        kind = Signal(8)

        end = Signal()
        m.d.comb += [
            end.eq(self.i_valid & ((self.i == ord("\r")) | (self.i == ord("\n")))),
            self.bus.request.p.address.eq(address),
            self.bus.request.p.write.eq(write),
            self.bus.request.p.data.eq(value),
        ]
        complete = ~bad & (
            ~strict & ((part == _Part.DATA) | (part == _Part.TAIL)
                       | (part == _Part.ADDRESS) & ~write)
            | (part == _Part.SUM) & (count == 4) & (given == heard.crc))
        m.d.comb += heard.data.eq(self.i)
        with m.FSM() as fsm:
            with m.State("Line"):
                m.d.sync += kind.eq(ord("?"))
                with m.If(end):
                    m.d.sync += [part.eq(_Part.NOTHING), bad.eq(0)]
                    m.d.comb += heard.start.eq(1)
                    with m.If(complete):
                        m.next = "Request"
                    with m.Elif(bad | (part != _Part.NOTHING)):
                        m.next = "Answer"
                with m.Elif(self.i_valid):
                    self._take(m, part, write, strict, bad, address, value, heard, given, count)
            with m.State("Request"):
                m.d.comb += self.bus.request.valid.eq(1)
                with m.If(self.bus.request.ready):
                    m.next = "Response"
            with m.State("Response"):
                m.d.comb += self.bus.response.ready.eq(1)
                with m.If(~write):
                    m.d.sync += value.eq(self.bus.response.p.data)
                m.d.sync += kind.eq(Mux(self.bus.response.p.error, ord("!"), ord("=")))
                with m.If(self.bus.response.valid):
                    m.next = "Answer"
            with m.State("Answer"):
                with m.If(self._answer(m, kind, address, value)):
                    m.next = "Next"
            with m.State("Next"):
                m.d.sync += kind.eq(ord("?"))
                with m.If(owed):
                    m.d.sync += owed.eq(0)
                    m.next = "Answer"
                with m.Elif(~self.i_valid):
                    m.d.sync += [bad.eq(lost), lost.eq(0)]
                    m.next = "Line"
        with m.If(~fsm.ongoing("Line") & self.i_valid):
            m.d.sync += lost.eq(~end)
            with m.If(end & lost):
                m.d.sync += owed.eq(1)
        return m

    def _take(self, m, part, write, strict, bad, address, value, heard, given, count):
        """Take one character of a line, other than the end of the line."""
        character = self.i
        lower = character | 0x20
        figure = (character >= ord("0")) & (character <= ord("9"))
        digit = Signal(4)
        m.d.comb += digit.eq(Mux(figure, character[:4], character[:4] + 9))
        m.d.comb += heard.valid.eq((part != _Part.SUM) & (character != ord("*")))

        m.d.sync += bad.eq(1)  # overridden below for valid characters
        fine = bad.eq(bad)
        with m.If(character == ord(" ")):
            with m.Switch(part):
                with m.Case(_Part.NOTHING, _Part.SPACE, _Part.GAP, _Part.TAIL):
                    m.d.sync += fine
                with m.Case(_Part.COMMAND):
                    m.d.sync += [part.eq(_Part.SPACE), fine]
                with m.Case(_Part.ADDRESS):
                    m.d.sync += [part.eq(Mux(write, _Part.GAP, _Part.TAIL)), fine]
                with m.Case(_Part.DATA):
                    m.d.sync += [part.eq(_Part.TAIL), fine]
        with m.Elif(character == ord("*")):
            m.d.sync += [part.eq(_Part.SUM), count.eq(0)]
            with m.If((part == _Part.ADDRESS) & ~write | (part == _Part.DATA)
                      | (part == _Part.TAIL)):
                m.d.sync += fine
        with m.Elif((lower == ord("r")) | (lower == ord("w"))):
            m.d.sync += [part.eq(_Part.COMMAND), write.eq(lower == ord("w")),
                         strict.eq(~character[5])]
            with m.If(part == _Part.NOTHING):
                m.d.sync += fine
        with m.Elif(figure | (lower >= ord("a")) & (lower <= ord("f"))):
            m.d.sync += count.eq(count + 1)
            with m.Switch(part):
                with m.Case(_Part.SPACE):
                    m.d.sync += [part.eq(_Part.ADDRESS), address.eq(digit), count.eq(1), fine]
                with m.Case(_Part.GAP):
                    m.d.sync += [part.eq(_Part.DATA), value.eq(digit), count.eq(1), fine]
                with m.Case(_Part.ADDRESS):
                    m.d.sync += address.eq(Cat(digit, address))
                    with m.If(count != 4):
                        m.d.sync += fine
                with m.Case(_Part.DATA):
                    m.d.sync += value.eq(Cat(digit, value))
                    with m.If(count != 8):
                        m.d.sync += fine
                with m.Case(_Part.SUM):
                    m.d.sync += given.eq(Cat(digit, given))
                    with m.If(count != 4):
                        m.d.sync += fine

    def _answer(self, m, kind, address, value):
        """Offer the characters of an answer; return the condition that the last one is taken.

        ``address`` and ``value`` rotate once around.
        """
        o = self.o
        # = 0 0 1 0   f f f 0 0 f f f  *  4  a  0  b CR LF
        # 0 1 2 - 5 6 7 - - - - - - 14 15 16 17 18 19 20 21
        m.submodules.said = said = crc.Processor(CRC16_CCITT_FALSE(data_width=8))
        place, nibble, at = Signal(range(22)), Signal(4), Signal(2)
        m.d.comb += [
            o.valid.eq(1),
            nibble.eq(Mux(place < 6, address[12:], value[28:])),
            at.eq(~place[:2]),  # 3 for the sum's first digit
        ]
        # The sum has a cycle for itself; its first digit follows two characters later.
        m.d.sync += [said.data.eq(o.payload), said.valid.eq(o.ready & (place < 15))]
        with m.Switch(place):
            with m.Case(0):
                m.d.comb += o.payload.eq(kind)
            with m.Case(1, 6):
                m.d.comb += o.payload.eq(ord(" "))
            with m.Case(15):
                m.d.comb += o.payload.eq(ord("*"))
            with m.Case(16, 17, 18, 19):
                m.d.comb += nibble.eq(said.crc.word_select(at, 4))
                m.d.comb += o.payload.eq(self._figure(nibble))
            with m.Case(20):
                m.d.comb += o.payload.eq(ord("\r"))
            with m.Case(21):
                m.d.comb += o.payload.eq(ord("\n"))
            with m.Default():
                m.d.comb += o.payload.eq(self._figure(nibble))
        last = o.ready & (place == 21)
        with m.If(o.ready):
            m.d.sync += place.eq(place + 1)
            with m.If((place == 0) & (kind == ord("?")) | (place == 5) & (kind == ord("!"))):
                m.d.sync += place.eq(15)
            with m.If((place > 1) & (place < 6)):
                m.d.sync += address.eq(address.rotate_left(4))
            with m.If((place > 6) & (place < 15)):
                m.d.sync += value.eq(value.rotate_left(4))
        with m.If(last):
            m.d.sync += place.eq(0)
            m.d.comb += [said.start.eq(1), self.stat_refused.eq(kind == ord("?"))]
        return last

    @staticmethod
    def _figure(nibble):
        """Hexadecimal digit of a nibble."""
        return Mux(nibble < 10, nibble + ord("0"), nibble + (ord("a") - 10))
