"""Reads in flight: tags, completions, timeouts.

Ref: PCIe Base 5.0, 2.2.9 (completions), 2.3.1.1 (data return), 2.3.2 (completion handling),
2.7.2.2 (poisoned completions), 2.8 (completion timeout)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import first_one
from dxpu.tlp.types import CompletionStatus, TlpClass

from .types import ConfigState, Errors, TlpTap

__all__ = ["Reads"]

#: A read fails after this number of ticks.
TICKS = 4


class Reads(wiring.Component):
    """Keeps the open reads, takes their completions and addresses their data.

    Completions of different reads may come in any order. The completions of one read come in the
    order of addresses, cut at any dword. A completion is used if its tag and requester ID are those
    of an open read, and if byte count, lower address and length fit the rest of the read. All other
    completions are dropped and counted as ``unexpected``; they change nothing.

    A read fails by a completion with an error or with poisoned data, or when it is not complete
    after ``timeout`` cycles. Data that came before the failure stays written; completions after the
    failure are unexpected.

    A tag consists of the number of the entry and a use count of the entry, modulo 4. So a late
    completion does not match the next read in the same entry.

    Parameters
    ----------
    tags : int
        Reads in flight, 1 to 8.
    address_bits : int
        Bits of a byte address in the target.
    timeout : int
        Cycles, 16 or more; a read fails after ``timeout`` to 4/3 of ``timeout`` cycles.

    Members
    -------
    limit : 4
        Reads in flight that are allowed now.
    free, tag : 1, 5
        Another read may begin, with this tag. Both have a latency of two cycles.
    begins : 1
        Strobe, while ``free``: the read begins. The next ``begins`` comes five cycles later or
        more.
    position, dwords, last_byte, lower : byte address, 11, 2, 7
        In the two cycles after ``begins``. ``position``: where the first byte of the first dword
        goes. ``dwords``: length of the read. ``last_byte``: which byte of the last dword is the
        last one. ``lower``: low bits of the host address of the first byte.
    tap : :class:`~.types.TlpTap`
    state : :class:`~.types.ConfigState`
    strobe : 1
        The tap's data belongs to a read.
    address, enables : byte address, 4
        Strobes: write these bytes of the tap's data at ``address``, which need not be a multiple of
        4.
    pending : 1
        Reads are open.
    failed : 1
        Pulse: a read failed.
    errors : :class:`~.types.Errors`
        Errors of reads; the other bits are 0.
    """

    def __init__(self, *, tags, address_bits, timeout):
        if tags not in range(1, 9):
            raise ValueError(f"tags must be 1 to 8, not {tags!r}")
        if not isinstance(timeout, int) or timeout < 16:
            raise ValueError(f"timeout must be an integer of at least 16, not {timeout!r}")
        super().__init__({
            "limit": In(4), "free": Out(1), "tag": Out(5), "begins": In(1),
            "position": In(address_bits), "dwords": In(11), "last_byte": In(2), "lower": In(7),
            "tap": In(TlpTap()), "state": In(ConfigState),
            "strobe": Out(1), "address": Out(address_bits), "enables": Out(4),
            "pending": Out(1), "failed": Out(1), "errors": Out(Errors),
        })
        self._tags = tags
        self._period = -(-timeout // (TICKS - 1))
        self._entry = data.StructLayout(
            {"position": address_bits, "dwords": 11, "last_byte": 2, "lower": 7})

    def elaborate(self, platform):
        m = Module()
        tags = self._tags
        open_, ended, expired = Signal(tags), Signal(tags), Signal(tags)
        # A read begins when the memory of the entries is not written for another one.
        place, opening, opens = Signal(range(tags)), Signal(range(tags)), Signal()
        # A Function Level Reset keeps this: late completions survive the reset, too.
        given = Signal(data.ArrayLayout(2, tags), reset_less=True)
        m.submodules.entries = entries = Memory(shape=self._entry, depth=8, init=[])
        write, read = entries.write_port(), entries.read_port(domain="comb")
        m.d.comb += [
            self.tag.eq(Cat(place, C(0, 3 - len(place)), given[place])),
            self.pending.eq(open_.any() | opens),
            read.addr.eq(self.tap.info.tag[:3]),
            write.addr.eq(opening), write.en.eq(opens),
            *(write.data[k].eq(getattr(self, k)) for k, _ in self._entry),
            self.failed.eq(expired.any() | self.errors.poisoned | self.errors.target_abort
                           | self.errors.master_abort),
        ]
        m.d.sync += [
            place.eq(first_one(~open_)),
            self.free.eq((sum(open_) < self.limit) & ~open_.all()),
            opens.eq(self.begins | opens & self.tap.end),
            open_.eq((open_ | Mux(opens & ~self.tap.end, 1 << opening, 0)) & ~ended & ~expired),
        ]
        with m.If(~opens):
            m.d.sync += opening.eq(place)
        for n in range(tags):
            with m.If(ended[n] | expired[n]):
                m.d.sync += given[n].eq(given[n] + 1)
        self._age(m, open_, expired)
        self._complete(m, read.data, write, open_, given, ended)
        return m

    def _age(self, m, open_, expired):
        """Age the open reads at each tick: one per cycle, none while a TLP comes."""
        left = Signal(range(self._period), init=self._period - 1)
        turn, busy = Signal(range(self._tags + 1), init=self._tags), Signal()
        ends = Signal()  # reads have ended by the TLP before
        done = turn == self._tags
        with m.If(self.tap.begin):
            m.d.sync += busy.eq(1)
        with m.Elif(ends):
            m.d.sync += busy.eq(0)
        m.d.sync += ends.eq(self.tap.end)
        looks = ~done & ~busy & ~self.tap.begin
        with m.If(looks):
            m.d.sync += turn.eq(turn + 1)
        with m.If(left.any()):
            m.d.sync += left.eq(left - 1)
        with m.Elif(done):
            m.d.sync += left.eq(self._period - 1)
            with m.If(~self.state.timeout_off):
                m.d.sync += turn.eq(0)
        for n in range(self._tags):
            age = Signal(range(TICKS), name=f"age{n}")
            with m.If(~open_[n]):
                m.d.sync += age.eq(0)
            with m.Elif(looks & (turn == n)):
                m.d.sync += age.eq(age + 1)
                m.d.comb += expired[n].eq(age == TICKS - 1)
        m.d.comb += self.errors.timeout.eq(expired.any())

    def _complete(self, m, found, write, open_, given, ended):
        """Take a completion."""
        tap, info = self.tap, self.tap.info
        entry, named = Signal(self._entry), Signal()
        fits, good, bad = Signal(), Signal(), Signal()
        skipped, bytes_left = entry.lower[:2], Signal(13)
        dwords_left, first, lower = Signal(11), Signal(), Signal(5)
        slot = info.tag[:3]
        m.d.sync += [
            entry.eq(found),
            named.eq((info.cls == TlpClass.CPL) & ~info.is_locked & (info.tag[5:] == 0)
                     & (info.requester_id == self.state.requester_id)
                     & (Cat(slot == n for n in range(self._tags)) & open_).any()
                     & (info.tag[3:5] == Array(given)[slot])),
        ]
        m.d.comb += [
            bytes_left.eq(Cat(entry.last_byte, entry.dwords) - skipped - 3),
            fits.eq(named & (info.status == CompletionStatus.SC)
                    & (info.byte_count == bytes_left[:12]) & (info.lower_address == entry.lower)
                    & info.payload_dwords.any() & (info.payload_dwords <= entry.dwords)),
        ]
        settles = Signal()  # the second cycle of a TLP
        m.d.sync += settles.eq(tap.begin)
        with m.If(settles):
            m.d.sync += [
                good.eq(fits & ~info.ep),
                bad.eq(fits & info.ep | named & (info.status != CompletionStatus.SC)
                       & ~info.payload_dwords.any()),
                dwords_left.eq(entry.dwords), first.eq(1), lower.eq(entry.lower[2:]),
                self.address.eq(entry.position),
            ]
        with m.If(tap.strobe):
            m.d.sync += [dwords_left.eq(dwords_left - 1), first.eq(0), lower.eq(lower + 1),
                         self.address[2:].eq(self.address[2:] + 1)]
        m.d.comb += self.strobe.eq(tap.strobe & good)
        with m.If(self.strobe):
            m.d.comb += self.enables.eq(
                Mux(dwords_left == 1, ~(14 << entry.last_byte), 15) & Mux(first, 15 << skipped, 15))

        m.d.sync += ended.eq(Mux(tap.end & (good & ~dwords_left.any() | bad), 1 << slot, 0))
        with m.If(tap.end):
            m.d.sync += [good.eq(0), bad.eq(0)]
            m.d.comb += [
                self.errors.unexpected.eq((info.cls == TlpClass.CPL) & ~good & ~bad),
                self.errors.poisoned.eq(bad & (info.status == CompletionStatus.SC)),
                self.errors.poisoned_read.eq(self.errors.poisoned),
                self.errors.target_abort.eq(bad & (info.status == CompletionStatus.CA)),
                self.errors.master_abort.eq(bad & ~self.errors.poisoned
                                            & ~self.errors.target_abort),
            ]
            with m.If(good):
                m.d.comb += [
                    write.addr.eq(slot), write.en.eq(1), write.data.position.eq(self.address),
                    write.data.dwords.eq(dwords_left), write.data.last_byte.eq(entry.last_byte),
                    write.data.lower.eq(Cat(C(0, 2), lower)),
                ]
