"""Management interface to PHYs, MDC and MDIO (IEEE 802.3, 22.2.2.13, 22.2.4.5, 22.3.4)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin

__all__ = ["MDC_HZ", "Mdio", "MdioAccess", "MdioCommand", "MdioPort", "MdioResult", "MdioSharing"]

#: Fastest MDC that every PHY supports (22.2.2.13: a period of 400 ns).
MDC_HZ = 2_500_000


class MdioCommand(data.Struct):
    """A read or write of a PHY register; the first field is the least significant."""

    #: Data to be written; ignored by a read.
    data: 16
    #: Number of the register.
    register: 5
    #: Address of the PHY.
    phy: 5
    #: 1 for a write, 0 for a read.
    write: 1


class MdioResult(data.Struct):
    """Answer to a command; the first field is the least significant."""

    #: Data that was read; undefined after a write.
    data: 16
    #: No PHY drove the second bit of a read's turnaround (22.2.4.5.5). Never set by a write.
    error: 1


class MdioPort(wiring.Signature):
    """Commands and results, seen from the requester. A result must be taken before the next command
    is offered.

    Members
    -------
    command : Out(stream of MdioCommand)
    result : In(stream of MdioResult)
        One result for each command, writes too.
    """

    def __init__(self):
        super().__init__({"command": Out(stream.Signature(MdioCommand)),
                          "result": In(stream.Signature(MdioResult))})


class MdioAccess:
    """Commands over ``port`` from the states of an FSM in ``m``.

    A call in a state offers the command until its result comes. The call returns the condition that
    the result is valid in this cycle, in ``answer``.
    """

    def __init__(self, m, port):
        self._m, self._port = m, port
        self._asked = Signal(name="mdio_asked")
        #: :class:`MdioResult`.
        self.answer = port.result.payload
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += self._asked.eq(1)
        with m.If(port.result.valid & port.result.ready):
            m.d.sync += self._asked.eq(0)

    def __call__(self, phy, register, *, write=0, value=0):
        command = self._port.command
        self._m.d.comb += [
            command.payload.phy.eq(phy), command.payload.register.eq(register),
            command.payload.write.eq(write), command.payload.data.eq(value),
            command.valid.eq(~self._asked), self._port.result.ready.eq(self._asked),
        ]
        return self._asked & self._port.result.valid


class Mdio(wiring.Component):
    """Clause 22 master: takes a command, sends the frame, gives the result.

    Every frame has a preamble of 32 ones. MDC is 0 between frames. MDIO changes at the falling edge
    of MDC, half a period before and after the rising edges at which a PHY samples, and is itself
    sampled at the rising edge. A frame ends with a period in which nobody drives MDIO, as a PHY may
    take 300 ns to release the pin.

    A command takes 65 periods of MDC and three cycles. The next command is taken after the result.

    Parameters
    ----------
    clock_hz : number
        Frequency of ``sync``, in hertz.
    mdc_hz : number
        Upper limit of the frequency of MDC, in hertz; at most 2.5 MHz. The period of MDC is an even
        number of cycles, at least six.

    Members
    -------
    port : In(MdioPort)
    mdc : Out(1)
    mdio_o, mdio_oe : Out(1)
        Driven value and output enable of MDIO; both are registers.
    mdio_i : In(1)
        Level of the MDIO pin, which needs a pull-up resistor. Asynchronous.
    """

    port: In(MdioPort())
    mdc: Out(1)
    mdio_o: Out(1)
    mdio_oe: Out(1)
    mdio_i: In(1)

    def __init__(self, *, clock_hz, mdc_hz=MDC_HZ):
        if not clock_hz > 0:
            raise ValueError(f"clock_hz must be positive, not {clock_hz!r}")
        if not 0 < mdc_hz <= MDC_HZ:
            raise ValueError(f"mdc_hz must be at most {MDC_HZ}, not {mdc_hz!r}")
        super().__init__()
        #: Cycles of half a period of MDC.
        self.half = max(3, -int(-clock_hz // (2 * mdc_hz)))

    def elaborate(self, platform):
        m = Module()
        pin = Signal()
        m.submodules.pin = FFSynchronizer(self.mdio_i, pin, init=1)

        # Bits of the frame behind the preamble, first bit on top; position in the frame.
        frame, bit = Signal(32, reset_less=True), Signal(7)
        write, received = Signal(reset_less=True), Signal(16, reset_less=True)
        error = Signal()
        left = Signal(range(self.half))
        turnaround, body = 32 + 14, 32

        running = Signal()
        m.d.sync += [
            self.mdio_o.eq((bit < body) | frame[-1]),
            self.mdio_oe.eq(running & ((bit < turnaround) | write & ~bit[6])),
        ]
        result = self.port.result
        m.d.comb += [result.payload.data.eq(received), result.payload.error.eq(error)]
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.port.command.ready.eq(1)
                command = self.port.command.payload
                m.d.sync += [
                    frame.eq(Cat(command.data, C(0b10, 2), command.register, command.phy,
                                 Mux(command.write, C(0b01, 2), C(0b10, 2)), C(0b01, 2))),
                    write.eq(command.write), bit.eq(0), left.eq(self.half - 1),
                    error.eq(0),
                ]
                with m.If(self.port.command.valid):
                    m.next = "Frame"
            with m.State("Frame"):
                m.d.comb += running.eq(1)
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.d.sync += [self.mdc.eq(~self.mdc), left.eq(self.half - 1)]
                    with m.If(self.mdc):
                        m.d.sync += bit.eq(bit + 1)
                        with m.If(bit >= body):
                            m.d.sync += frame.eq(frame << 1)
                        with m.If(bit == 64):
                            m.next = "Result"
                # This is the level of the pin at the rising edge of MDC, two cycles ago.
                with m.If(self.mdc & (left == self.half - 2) & ~bit[6]):
                    m.d.sync += received.eq(Cat(pin, received))
                    with m.If((bit == turnaround + 1) & ~write):
                        m.d.sync += error.eq(pin)
            with m.State("Result"):
                m.d.comb += result.valid.eq(1)
                with m.If(result.ready):
                    m.next = "Idle"
        return m


class MdioSharing(wiring.Component):
    """Round-robin sharing of one :class:`Mdio`; each source gets the results of its own commands.

    Latency: one cycle from a command to ``o``, none for the result.

    Parameters
    ----------
    sources : int
        Number of requesters.

    Members
    -------
    i : In(MdioPort), array of ``sources``
    o : Out(MdioPort)
    """

    def __init__(self, sources):
        if not isinstance(sources, int) or sources < 1:
            raise ValueError(f"sources must be a positive integer, not {sources!r}")
        super().__init__({"i": In(MdioPort()).array(sources), "o": Out(MdioPort())})
        self._sources = sources

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self._sources)
        m.d.comb += valid.eq(Cat(source.command.valid for source in self.i))
        busy, sent, turn = Signal(), Signal(), Signal(range(self._sources))
        command, result = self.o.command, self.o.result
        with m.If(~busy):
            m.d.sync += [turn.eq(round_robin(valid, turn)), busy.eq(valid.any()), sent.eq(0)]
        with m.Switch(turn):
            for n, source in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        command.payload.eq(source.command.payload),
                        command.valid.eq(busy & ~sent),
                        source.command.ready.eq(command.ready & busy & ~sent),
                        source.result.payload.eq(result.payload),
                        source.result.valid.eq(result.valid & sent),
                        result.ready.eq(source.result.ready & sent),
                    ]
        with m.If(command.valid & command.ready):
            m.d.sync += sent.eq(1)
        with m.If(result.valid & result.ready):
            m.d.sync += busy.eq(0)
        return m
