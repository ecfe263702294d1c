"""The copy engine: takes commands from a ring in the host's memory and carries them out.

Ref: PCIe Base 5.0, 2.2.2 (payload), 2.2.5 (byte enables), 2.2.7 (4 KiB), 7.5.3.4 (sizes)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import TlpClass

from .register_map import COPY_TO_GPU, COPY_TO_HOST, VECTORS
from .types import ConfigState, Departure, Settings, request_words

__all__ = ["Engine"]


class Engine(wiring.Component):
    """Carries out the commands of the ring, one after the other.

    The engine reads a command from its place in the ring. A copy to the GPU is a series of reads
    from the host; :class:`~.reads.Reads` limits how many are in flight. Each read ends at a
    multiple of its size, which is the smaller of the register ``READ_SIZE`` and
    Max_Read_Request_Size. A copy to the host is a series of writes, each ending at a multiple of
    Max_Payload_Size. So no request crosses a multiple of 4 KiB.

    ``finished`` ends a command, together with ``failed`` if the command could not be read or not be
    carried out to its end: unknown command, transfer beyond the video memory, failed read, requests
    not allowed. Afterwards, if the command was read, the engine writes the command's cookie to the
    fence and raises the command's interrupt.

    A request takes three cycles besides the time that it waits.

    Parameters
    ----------
    vram_bytes : int
        Size of the video memory.

    Members
    -------
    settings : :class:`~.types.Settings`
    state : :class:`~.types.ConfigState`
    fetching : 1
        The open read is the read of a command; its data goes to ``command_index``,
        ``command_data``.
    command_index, command_data, command_write : 3, 32, 1
        Strobe: a dword of the command.
    free, tag, begins, position, size, lower
        Ports of the same names at :class:`~.reads.Reads`.
    pending, read_failed : 1
        ``pending`` and ``failed`` of :class:`~.reads.Reads`.
    busy : 1
        A command is under way.
    finished, failed : 1
        Pulses: a command has ended; the command failed.
    vectors : ``VECTORS``
        Pulses: raise the interrupt of this vector.
    o : :class:`~.types.Departure`
    """

    def __init__(self, vram_bytes):
        bits = vram_bytes.bit_length() - 1
        super().__init__({
            "settings": In(Settings), "state": In(ConfigState), "fetching": Out(1),
            "command_index": In(3), "command_data": In(32), "command_write": In(1),
            "free": In(1), "tag": In(5), "begins": Out(1), "position": Out(bits),
            "size": Out(13), "lower": Out(7), "pending": In(1), "read_failed": In(1),
            "busy": Out(1), "finished": Out(1), "failed": Out(1), "vectors": Out(VECTORS),
            "o": Out(Departure(bits)),
        })
        self._bits = bits
        self._drains = Signal()  # waiting for reads
        self._command = data.StructLayout({
            "to_gpu": 1, "to_host": 1, "interrupts": 1, "vector": range(VECTORS), "wide": 1,
            "cookie": 32})

    def elaborate(self, platform):
        m = Module()
        state, settings, o = self.state, self.settings, self.o
        command = Signal(self._command, reset_less=True)

        # Rest of the transfer: `left` bytes from or to the address `host`.
        host, left = Signal(64, reset_less=True), Signal(self._bits + 1)
        position = Signal(self._bits + 1, reset_less=True)
        writes, fences, failed = Signal(), Signal(), Signal()
        size = Signal(13)  # of the next request
        step, fits = Signal(64), Signal()
        m.d.comb += [
            fits.eq(~command.wide & (left + position <= 1 << self._bits)
                    & (command.to_gpu | command.to_host)),
            self.busy.eq(1),
            step.eq(size),
        ]
        with m.If(self.read_failed):
            m.d.sync += failed.eq(1)
        advance = [host.eq(host + step), left.eq(left - size), position.eq(position + size)]
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [failed.eq(0), writes.eq(0), fences.eq(0), host.eq(settings.ring)]
                m.d.comb += self.busy.eq(0)
                with m.If(settings.waiting):
                    m.next = "Place"
            with m.State("Place"):
                m.d.comb += step.eq(settings.slot << 5)
                m.d.sync += [host.eq(host + step), left.eq(32), position.eq(0),
                             self.fetching.eq(1)]
                m.next = "Cut"
            with m.State("Cut"):
                m.d.sync += size.eq(self._cut(m, host, left, writes))
                m.next = "Ask"
                with m.If(~state.master & left.any()):
                    m.d.sync += failed.eq(1)
                with m.If(~left.any() | failed | ~state.master):
                    m.next = "Drain"
            with m.State("Ask"):
                m.d.comb += o.ask.eq((writes | self.free) & state.master & ~failed)
                with m.If(o.go):
                    m.d.comb += self.begins.eq(~writes)
                    m.next = "Send"
                with m.Elif(~state.master | failed):
                    m.next = "Cut"
            with m.State("Send"):
                with m.If(o.done):
                    m.d.sync += advance
                    m.next = "Cut"
            with m.State("Drain"):
                m.d.comb += self._drains.eq(1)
                with m.If(~self.pending):
                    with m.If(fences):
                        m.next = "Interrupt"
                    with m.Elif(~self.fetching | failed):
                        m.next = "Finish"
                    with m.Else():
                        m.next = "Begin"
            with m.State("Begin"):
                m.d.sync += [self.fetching.eq(0), writes.eq(command.to_host)]
                m.next = "Cut"
                with m.If(~fits):
                    m.d.sync += failed.eq(1)
                    m.next = "Finish"
            with m.State("Finish"):
                m.d.comb += [self.finished.eq(1), self.failed.eq(failed)]
                m.d.sync += [failed.eq(0), fences.eq(1), writes.eq(1), left.eq(4),
                             host.eq(settings.fence), self.fetching.eq(0)]
                with m.If(self.fetching):
                    m.next = "Idle"
                with m.Elif(~settings.fence.any()):
                    m.next = "Interrupt"
                with m.Else():
                    m.next = "Cut"
            with m.State("Interrupt"):
                m.d.comb += self.vectors.eq(command.interrupts << command.vector)
                m.next = "Idle"
        self._keep(m, command, host, left, position)
        self._request(m, host, size, position, writes, fences, command)
        return m

    def _keep(self, m, command, host, left, position):
        """Keep the dwords of a command.

        The dwords come after the read of the command was sent, when the registers of the transfer
        are free. Earlier data is ignored.
        """
        data, limit = self.command_data, self._bits + 1
        with m.If(~self.fetching):
            m.d.sync += command.wide.eq(0)
        with m.If(self.command_write & self._drains):
            with m.Switch(self.command_index):
                with m.Case(0):
                    m.d.sync += [command.to_gpu.eq(data == COPY_TO_GPU),
                                 command.to_host.eq(data == COPY_TO_HOST)]
                with m.Case(1):
                    m.d.sync += [command.interrupts.eq(data[0]), command.vector.eq(data[8:])]
                for n in range(2):
                    with m.Case(2 + n):
                        m.d.sync += host.word_select(n, 32).eq(data)
                with m.Case(4):
                    m.d.sync += [position.eq(data),
                                 command.wide.eq(command.wide | data[limit:].any())]
                with m.Case(5):
                    m.d.sync += command.wide.eq(command.wide | data.any())
                with m.Case(6):
                    m.d.sync += [left.eq(data),
                                 command.wide.eq(command.wide | data[limit:].any())]
                with m.Case(7):
                    m.d.sync += command.cookie.eq(data)

    def _cut(self, m, host, left, writes):
        """Bytes of the next request: up to a multiple of the request size, or to the end."""
        mask, rest = Signal(12), Signal(13)
        payload = Cat(C(127, 7), *(self.state.max_payload > n for n in range(2)))
        reads = self.settings.read_mask & self.state.read_mask
        m.d.comb += [
            # A command is read by one request of 32 bytes.
            mask.eq(Mux(writes, payload, Mux(self.fetching, 31, reads))),
            rest.eq((~host[:12] & mask) + 1),
        ]
        return Mux(left < rest, left, rest)

    def _request(self, m, host, size, position, writes, fences, command):
        """Build the TLP of a request."""
        o, skipped, tag = self.o, host[:2], Signal(5)
        end, length = Signal(14), Signal(11)
        first, last = Signal(4), Signal(4)
        with m.If(o.go):
            m.d.sync += tag.eq(self.tag)
        m.d.comb += [
            end.eq(size + skipped), length.eq((end + 3)[2:]),
            last.eq(Mux(end[:2] == 0, 15, ~(15 << end[:2]))),
            first.eq((15 << skipped) & Mux(length == 1, last, 15)),
            o.cls.eq(Mux(writes, TlpClass.P, TlpClass.NP)),
            o.long.eq(host[32:].any()),
            o.payload.eq(Mux(writes, length, 0)),
            o.stored.eq(~fences),
            o.address.eq(position - skipped),
            self.position.eq(o.address), self.size.eq(size), self.lower.eq(host),
        ]
        words = request_words(
            m, write=writes, long=o.long, length=length, requester_id=self.state.requester_id,
            tag=Mux(writes, 0, tag), first_be=first, last_be=Mux(length == 1, 0, last),
            address=host)
        m.d.comb += o.word.eq(command.cookie)
        with m.Switch(o.index):
            for n in range(3):
                with m.Case(n):
                    m.d.comb += o.word.eq(words[n])
            with m.Case(3):
                with m.If(o.long):
                    m.d.comb += o.word.eq(words[3])
