"""The copy engine: takes commands from a ring in the host's memory and carries them out.

Ref: PCIe Base 5.0, 2.2.2 (payload), 2.2.5 (byte enables), 2.2.7 (4 KiB), 7.5.3.4 (sizes)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import TlpClass

from .register_map import COPY_TO_GPU, COPY_TO_HOST, REGISTERS, VECTORS
from .store import DEPTH
from .types import ConfigState, Departure, Settings, WordReader, request_word

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

    A request takes four cycles besides its dwords and the time that it waits.

    Parameters
    ----------
    vram_bytes : int
        Size of the video memory.

    Members
    -------
    settings : :class:`~.types.Settings`
    pointer, stored : :class:`~.types.WordReader`, 32
        Reads of the addresses of ring and fence.
    state : :class:`~.types.ConfigState`
    fetching : 1
        The open read is the read of a command; its data goes to ``command_index``,
        ``command_data``.
    command_index, command_data, command_write : 3, 32, 1
        Strobe: a dword of the command.
    free, tag, begins, position, dwords, last_byte, lower
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
            "settings": In(Settings), "pointer": Out(WordReader(DEPTH)), "stored": In(32),
            "state": In(ConfigState), "fetching": Out(1),
            "command_index": In(3), "command_data": In(32), "command_write": In(1),
            "free": In(1), "tag": In(5), "begins": Out(1), "position": Out(bits),
            "dwords": Out(11), "last_byte": Out(2), "lower": Out(7), "pending": In(1),
            "read_failed": In(1), "busy": Out(1), "finished": Out(1), "failed": Out(1),
            "vectors": Out(VECTORS), "o": Out(Departure(bits)),
        })
        self._bits = bits
        self._drains = Signal()  # waiting for reads
        self._command = data.StructLayout({
            "to_gpu": 1, "to_host": 1, "interrupts": 1, "vector": range(VECTORS), "wide": 1,
            "empty": 1, "cookie": 32})

    def elaborate(self, platform):
        m = Module()
        state, settings, o = self.state, self.settings, self.o
        command = Signal(self._command, reset_less=True)

        # Rest of the transfer: `left` dwords from or to the address `host`, up to byte
        # `last_byte` of the last one.
        host, left = Signal(64, reset_less=True), Signal(self._bits - 1)
        last_byte = Signal(2, reset_less=True)
        # Address in the video memory of the byte that the first byte of the host's dword has.
        position = Signal(signed(self._bits + 2), reset_less=True)
        writes, fences, failed = Signal(), Signal(), Signal()
        length = Signal(11)  # dwords of the next request
        ends = Signal()      # which is the last one
        step, fits = Signal(62), Signal()
        m.d.comb += [
            fits.eq(~command.wide & (command.to_gpu | command.to_host)),
            self.busy.eq(1),
            step.eq(length),
        ]
        with m.If(self.read_failed):
            m.d.sync += failed.eq(1)
        # The half of an address that is asked for, and the half that has come.
        half, came = Signal(), Signal(2)
        m.d.sync += came.eq(self.pointer.granted << half)
        loads = self._load(m, host, Cat(half, fences), came)
        # Requests but the last end at multiples of their size, so the next one begins at a dword.
        further = host.eq(Cat(C(0, 2), host[2:] + step))
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [failed.eq(0), writes.eq(0), fences.eq(0)]
                m.d.comb += self.busy.eq(0)
                with m.If(settings.waiting):
                    m.next = "Low"
            # The address of the ring, or of the fence.
            with m.State("Low"):
                m.d.comb += self.pointer.ask.eq(1)
                with m.If(self.pointer.granted):
                    m.next = "High"
            with m.State("High"):
                m.d.comb += [self.pointer.ask.eq(1), half.eq(1)]
                with m.If(self.pointer.granted):
                    m.next = "Loaded"
            with m.State("Loaded"):
                m.next = "Place"
                with m.If(fences):
                    m.next = "Cut"
            with m.State("Place"):
                m.d.comb += step.eq(settings.slot << 3)
                m.d.sync += [further, left.eq(8), last_byte.eq(3), position.eq(0),
                             self.fetching.eq(1)]
                m.next = "Cut"
            with m.State("Cut"):
                rest = self._rest(m, host, writes)
                more = left[11:].any() | (left[:11] > rest)
                m.d.sync += [length.eq(Mux(more, rest, left)), ends.eq(~more)]
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
                    m.d.sync += [further, left.eq(left - length),
                                 position.eq(position + (length << 2))]
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
                with m.If(~fits | command.empty):
                    m.d.sync += failed.eq(~fits)
                    m.next = "Finish"
            with m.State("Finish"):
                m.d.comb += [self.finished.eq(1), self.failed.eq(failed)]
                m.d.sync += [failed.eq(0), fences.eq(1), writes.eq(1), left.eq(1),
                             last_byte.eq(3), self.fetching.eq(0)]
                with m.If(self.fetching):
                    m.next = "Idle"
                with m.Elif(~settings.fence.any()):
                    m.next = "Interrupt"
                with m.Else():
                    m.next = "Low"
            with m.State("Interrupt"):
                m.d.comb += self.vectors.eq(command.interrupts << command.vector)
                m.next = "Idle"
        self._keep(m, command, host, loads, left, last_byte, position)
        self._request(m, host, length, Mux(ends, last_byte, 3), position, writes, fences, command)
        return m

    def _load(self, m, host, pointer, came):
        """Load a half of the host's address, out of the store or a command; return the strobes by
        which a command loads them."""
        settings, loads, used = self.settings, Signal(2), Signal()
        names = ("RING_LOW", "RING_HIGH", "FENCE_LOW", "FENCE_HIGH")
        m.d.comb += [
            self.pointer.word_index.eq(Array(REGISTERS[name] >> 2 for name in names)[pointer]),
            loads.eq(came),
        ]
        # A half that is 0 may never have been written, so the store may have an old one.
        m.d.sync += used.eq(Cat(settings.ring, settings.fence).bit_select(pointer, 1))
        for n in range(2):
            with m.If(loads[n]):
                m.d.sync += host.word_select(n, 32).eq(
                    Mux(self._drains, self.command_data, Mux(used, self.stored, 0)))
        return loads

    def _keep(self, m, command, host, loads, left, last_byte, position):
        """Keep the dwords of a command.

        The dwords come after the read of the command was sent, when the registers of the transfer
        are free. They come in their order. Earlier data is ignored.
        """
        data, limit = self.command_data, self._bits + 1
        # Both addresses are kept before the number of bytes comes. The bytes before the first one
        # in the host's dword are taken off the position, and added to the number of bytes.
        skipped, counts = host[:2], self.command_index == 6
        total, end = Signal(limit + 1), Signal(limit + 2)
        m.d.comb += [
            total.eq(data[:limit] + Mux(counts, skipped + 3, -skipped)),
            end.eq(position + total),
        ]
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
                        m.d.comb += loads[n].eq(1)
                with m.Case(4):
                    m.d.sync += [position.eq(total.as_signed()),
                                 command.wide.eq(command.wide | data[limit:].any())]
                with m.Case(5):
                    m.d.sync += command.wide.eq(command.wide | data.any())
                with m.Case(6):
                    m.d.sync += [
                        Cat(last_byte, left).eq(total),
                        # The end, and 3, must not be beyond the size, and 3.
                        command.wide.eq(command.wide | data[limit:].any() | end[limit:].any()
                                        | end[self._bits] & end[2:self._bits].any()),
                        command.empty.eq(~data.any()),
                    ]
                with m.Case(7):
                    m.d.sync += command.cookie.eq(data)

    def _rest(self, m, host, writes):
        """Dwords up to the next multiple of the request size."""
        mask = Signal(12)
        payload = Cat(C(127, 7), *(self.state.max_payload > n for n in range(2)))
        reads = self.settings.read_mask & self.state.read_mask
        # A command is read by one request of 32 bytes.
        m.d.comb += mask.eq(Mux(writes, payload, Mux(self.fetching, 31, reads)))
        return (~host[2:12] & mask[2:]) + 1

    def _request(self, m, host, length, last_byte, position, writes, fences, command):
        """Build the TLP of a request of ``length`` dwords, up to ``last_byte`` of the last one."""
        o, skipped, tag = self.o, host[:2], Signal(5)
        first, last = Signal(4), Signal(4)
        # A request waits two cycles for `go`, so what depends on many bits is known by then.
        single, long = Signal(), Signal()
        m.d.sync += [single.eq(length == 1), long.eq(host[32:].any())]
        with m.If(o.ask):
            m.d.sync += tag.eq(self.tag)
        m.d.comb += [
            last.eq(Cat(last_byte >= n for n in range(4))),
            first.eq((15 << skipped) & Mux(single, last, 15)),
            o.cls.eq(Mux(writes, TlpClass.P, TlpClass.NP)),
            o.long.eq(long),
            o.payload.eq(Mux(writes, length, 0)),
            o.stored.eq(~fences),
            o.address.eq(position),
            self.position.eq(o.address), self.dwords.eq(length), self.last_byte.eq(last_byte),
            self.lower.eq(host),
        ]
        m.d.comb += o.word.eq(request_word(
            m, o.index, write=writes, long=long, length=length,
            requester_id=self.state.requester_id, tag=Mux(writes, 0, tag), first_be=first,
            last_be=Mux(single, 0, last), address=host, data=command.cookie,
            shown=o.elected))
