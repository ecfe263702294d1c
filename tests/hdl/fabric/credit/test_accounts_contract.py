"""Contract of accounts and grants of credits: what is used was granted, and all of it comes
back."""

from unittest import mock

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.fabric.credit import accounts as accounts_module
from dxpu.fabric.credit.accounts import CreditAccounts
from dxpu.fabric.credit.credits import closed_generation
from dxpu.fabric.credit.grants import CreditGrants
from dxpu.fabric.credit.limits.limit_intake import LimitIntake, NewLimits
from dxpu.fabric.wire.types import Limit
from dxpu.rows import LIFE_BITS, ClassMeta
from dxpu.tlp.types import TlpClass
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

#: Granted at first, and units of the largest TLP.
HEADERS, UNITS, LARGEST = 2, 3, 3
GENERATION = 5
#: Frames, and credits, that can pass a frame while it is under way: powers of two.
AGE, BEHIND = 1 << 20, 1 << 12


class Told(data.Struct):
    """Credits in a frame that is under way; ``new``: sent in this life of the row."""

    valid: 1
    ack: 24
    open: 1
    header: 16
    data: 16
    new: 1


class Elsewhere(data.Struct):
    """What happens to another row, in cycles in which the same does not happen to the watched one:
    anything."""

    open: 1
    life: LIFE_BITS
    begins: 1
    numbers: 1
    seq: 24
    tells: 1
    ack: 24
    generation: 8
    pays: 1
    releases: 1
    tlp: ClassMeta


def watching(base):
    class Accounts(base):
        """Shows what it knows of each class of ``watched``, a row, and where its life began."""

        def __init__(self, *, rows, watched):
            super().__init__(rows=rows, most=(LARGEST, LARGEST))
            self.watched = watched
            self.limit, self.used = ([Signal(Limit, name=f"{k}{n}") for n in range(3)]
                                     for k in ("limit", "used"))
            self.mark, self.known = Signal(24), Signal(3)
            self.heard, self.begun = Signal(name="hears"), Signal(name="begins")

        def elaborate(self, platform):
            m = super().elaborate(platform)
            intake, row = self._intake, self.watched
            port = intake.begins.read_port(domain="comb")
            m.d.comb += [
                port.addr.eq(row), self.mark.eq(port.data + 1),
                self.heard.eq(intake.confirmed[row]), self.begun.eq(intake.numbered_rows[row]),
            ]
            for n, (limit, used) in enumerate(zip(self.limit, self.used, strict=True)):
                m.d.comb += [
                    limit.eq(self._limits.read(m, f"shown_limit{n}", C(row, 1), C(n, 2))),
                    used.eq(Mux(self._pays(row, n), self._payment.used.as_value(),
                                Mux(self._begun[n][row], self._used.read(
                                    m, f"shown_used{n}", C(row, 1), C(n, 2)).as_value(), 0))),
                    self.known[n].eq(self._known[n][row]),
                ]
            return m

    return Accounts


Accounts = watching(CreditAccounts)


class Conserved(wiring.Component):
    """What the sender used and the receiver has not released is under way or in the receiver's
    queue, and never more than the queue has room for; so, when all has left and is known, all can
    be used again. A new life begins with all credits, and no limit of an older one counts in it,
    though its generation looks the same. Limits are told less by any amount (`withheld`).

    Frames with limits are lost, doubled, late and pass one another, as long as no older
    acknowledgement comes after a newer one; numbered ones come once and in order, as the link's
    contracts say. At most two events that begin lives are under way. One class of one row is
    watched, any; in the two others, and in another row if there are two, anything happens.
    """

    rebinds: In(1)
    numbers: In(1)
    asks: In(1)
    cls: In(2)
    units: In(range(LARGEST + 1))
    dead: In(1)
    pays: In(1)
    shown: In(ClassMeta)
    arrives: In(1)
    arrived: In(range(LARGEST + 1))
    commits: In(1)
    opens: In(1)
    releases: In(1)
    released: In(range(LARGEST + 1))
    released_cls: In(2)
    tells: In(2)
    withheld: In(Limit)
    delivers: In(2)
    is_reply: In(1)
    extension: In(2)
    other: In(48)
    elsewhere: In(Elsewhere)

    def __init__(self, accounts=Accounts, grants=CreditGrants, *, watched=TlpClass.NP, rows=1,
                 row=0):
        super().__init__()
        self.watched, self.rows, self.row = watched.value, rows, row
        self.accounts = accounts(rows=rows, watched=row)
        self.grants = grants(rows=rows, initial=((HEADERS, UNITS),) * 3,
                             period=2, again=2, refresh=2)

    def elaborate(self, platform):
        m = Module()
        m.submodules.accounts, m.submodules.grants = a, g = self.accounts, self.grants
        m.d.comb += [Assume(~ResetSignal()), Assume(self.cls < 3), Assume(self.released_cls < 3)]

        # Lives at the sender; events that begin them are numbered later.
        life, changed, unnumbered = Signal(LIFE_BITS), Signal(), Signal(init=1)
        flight, inside = ([Signal(4, name=f"{k}_{n}") for n in ("headers", "units")]
                          for k in ("flight", "inside"))
        ack, newest, events, began = Signal(24), Signal(24), Signal(2), Signal()
        paying, asked, meta = Signal(), Signal(), Signal(ClassMeta)
        rebinds, numbers = Signal(), Signal()
        m.d.comb += [
            rebinds.eq(self.rebinds & ~changed
                       & ~Mux(paying | asked, meta.life != life, self.dead)),
            numbers.eq(self.numbers & unnumbered & ~rebinds & (events < 2)),
            a.open[self.row].eq(1), a.lives[self.row].eq(life),
            *(generation.eq(GENERATION) for generation in a.generations),
            a.numbered_strobe.eq(numbers), a.numbered.row.eq(self.row),
            a.numbered.seq.eq(ack + flight[0] + events),
        ]
        m.d.sync += changed.eq(rebinds)
        with m.If(rebinds):
            m.d.sync += [life.eq(life + 1), unnumbered.eq(1)]
        with m.If(numbers):
            m.d.sync += unnumbered.eq(0)

        # A TLP that may go, for sure or by the answer of the next cycle, is paid for some time
        # later. One of a new life is not there yet when the life changes.
        asks, pays, counts, mine = Signal(), Signal(), Signal(), Signal()
        tlp = Signal(ClassMeta)
        m.d.comb += [
            tlp.row.eq(self.row), tlp.cls.eq(self.cls), tlp.units.eq(self.units),
            tlp.life.eq(Mux(self.dead, life - 1, life)),
            asks.eq(self.asks & ~paying & ~asked & ~(changed & ~self.dead)),
            a.checked.eq(Mux(pays, meta, Mux(asks, tlp, self.shown))),
            a.incoming.eq(Mux(asks, tlp, self.shown)),
            a.consumed.eq(pays),
            pays.eq(paying & self.pays), counts.eq(pays & (meta.life == life)),
            mine.eq(counts & (Value.cast(meta.cls) == self.watched)),
        ]
        m.d.sync += asked.eq(asks & ~a.sure)
        with m.If(asks):
            m.d.sync += meta.eq(tlp)
        with m.If(asks & a.sure | asked & a.ok):
            m.d.sync += paying.eq(1)
        with m.If(pays):
            m.d.sync += paying.eq(0)

        # The link, and the receiver's queue.
        arrives, commits, leaves, released = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            arrives.eq(self.arrives & (flight[0] != 0)),
            Assume(~arrives | (self.arrived <= flight[1])),
            Assume(~arrives | (flight[0] != 1) | (self.arrived == flight[1])),
            commits.eq(self.commits & (flight[0] == 0) & (events != 0)),
            leaves.eq(self.releases & (inside[0] != 0) & (self.released_cls == self.watched)),
            Assume(~leaves | (self.released <= inside[1])),
            Assume(~leaves | (inside[0] != 1) | (self.released == inside[1])),
            g.row.eq(self.row),
            g.released.row.eq(self.row), g.released.cls.eq(self.released_cls),
            g.released.units.eq(self.released),
            released.eq(leaves | self.releases & (self.released_cls != self.watched)),
            g.released_strobe.eq(released),
            g.want.ready.eq(1),
        ]
        m.d.sync += [
            flight[0].eq(flight[0] + mine - arrives),
            flight[1].eq(flight[1] + Mux(mine, meta.units, 0) - Mux(arrives, self.arrived, 0)),
            inside[0].eq(inside[0] + arrives - leaves),
            inside[1].eq(inside[1] + Mux(arrives, self.arrived, 0)
                         - Mux(leaves, self.released, 0)),
            ack.eq(ack + (arrives | commits)),
            events.eq(events + numbers - commits),
        ]
        open = Signal()
        m.d.comb += g.open[self.row].eq(open)
        with m.If(commits):
            m.d.sync += [open.eq(0), began.eq(1)]
        with m.Elif(self.opens & began & (inside[0] == 0) & ~arrives):
            m.d.sync += open.eq(1)

        # Frames with limits: at most two are remembered.
        limit, less = Signal.like(g.limits[0]), self.withheld
        m.d.comb += [
            limit.eq(g.limits[self.watched]), Assume((ack - newest)[:24] < AGE),
            # So little that the frame may be on its way for a cycle, at least.
            Assume(less.header < BEHIND - 1), Assume(less.data < BEHIND - LARGEST),
        ]
        told = [Signal(Told, name=f"told{n}") for n in range(2)]
        behind = [Signal(data.ArrayLayout(16, 2), name=f"behind{n}") for n in range(2)]
        takes = Signal(Told)
        m.d.comb += takes.eq(Mux(self.delivers[0], told[0].as_value(), told[1].as_value()))
        # A frame of which not all limits were read is there in the next cycle, too.
        busy, frame, kept = Signal(), Signal(NewLimits), Signal(NewLimits)
        arrived = self.delivers.any() & takes.valid & ~(takes.ack - newest)[23] & ~busy
        m.d.comb += [
            Assume(~self.delivers.all()),
            a.limits.valid.eq(busy | arrived), a.limits.payload.eq(Mux(busy, kept, frame)),
            frame.row.eq(self.row), frame.ack.eq(takes.ack),
            frame.is_reply.eq(self.is_reply), frame.crx.eq(1),
            frame.credit.cls.eq(self.extension),
        ]
        m.d.sync += [busy.eq(a.limits.valid & ~a.limits.ready), kept.eq(a.limits.payload)]
        for n, entry in enumerate([*frame.credits, frame.credit]):
            m.d.comb += [
                entry.generation.eq(Mux(takes.open, GENERATION, closed_generation(GENERATION))),
                Cat(entry.header_limit, entry.data_limit).eq(Mux(
                    self.extension == self.watched if n == 3 else n == self.watched,
                    Cat(takes.header, takes.data), self.other)),
            ]
        with m.If(arrived):
            m.d.sync += newest.eq(takes.ack)
        for n, (one, late) in enumerate(zip(told, behind, strict=True)):
            m.d.comb += [late[0].eq(limit.header - one.header), late[1].eq(limit.data - one.data)]
            with m.If(self.tells[n]):
                m.d.sync += [
                    one.valid.eq(1), one.ack.eq(ack), one.open.eq(open),
                    one.header.eq(limit.header - less.header),
                    one.data.eq(limit.data - less.data),
                    one.new.eq((events == 0) & ~unnumbered & ~rebinds & ~numbers),
                ]
            with m.Else():
                # It is gone before too much has passed it.
                gone = ((ack - one.ack)[:24] >= AGE - 1) | one.new & one.open & (
                    (late[0] >= BEHIND - 1) | (late[1] >= BEHIND - LARGEST))
                m.d.sync += [one.valid.eq(one.valid & ~gone),
                             one.new.eq(one.new & ~rebinds & ~numbers)]

        if self.rows == 2:
            self._other_row(m, numbers, pays, released, arrived | busy, frame)
        self._holds(m, life, changed, unnumbered, events, ack, newest, began, open, flight, inside,
                    paying, asked, meta, limit, told, behind)
        self.cover(m, (life == 1) & mine & ~changed, leaves & arrived)
        return m

    def _other_row(self, m, numbers, pays, released, arrives, frame):
        """What happens to it; overrules what was said of the ports in cycles that are its."""
        a, g, e, other = self.accounts, self.grants, self.elsewhere, 1 - self.row
        m.d.comb += [a.open[other].eq(e.open), a.lives[other].eq(e.life),
                     g.open[other].eq(e.begins)]
        tlp = Signal(ClassMeta)
        m.d.comb += [tlp.eq(e.tlp), tlp.row.eq(other), Assume(Value.cast(e.tlp.cls) < 3)]
        with m.If(e.numbers & ~numbers):
            m.d.comb += [a.numbered_strobe.eq(1), a.numbered.row.eq(other),
                         a.numbered.seq.eq(e.seq)]
        with m.If(e.pays & ~pays & ~self.asks):
            m.d.comb += [a.consumed.eq(1), a.checked.eq(tlp)]
        with m.If(e.releases & ~released):
            m.d.comb += [g.released_strobe.eq(1), g.released.eq(tlp)]
        with m.If(e.tells & ~arrives):
            m.d.comb += [a.limits.valid.eq(1), frame.row.eq(other), frame.ack.eq(e.ack)]
            for entry in (*frame.credits, frame.credit):
                m.d.comb += [entry.generation.eq(e.generation),
                             Cat(entry.header_limit, entry.data_limit).eq(self.other)]

    def _holds(self, m, life, changed, unnumbered, events, ack, newest, began, open, flight, inside,
               paying, asked, meta, limit, told, behind):
        a = self.accounts
        # The theorems: there is room for all that was sent, and what is missing is there.
        room = (HEADERS, UNITS)
        known = a.heard & ~changed
        has = Signal()
        m.d.comb += has.eq(a.known[self.watched] & ~changed)
        used, told_limit = Signal(Limit), Signal(Limit)
        m.d.comb += [
            used.eq(a.used[self.watched]),
            told_limit.eq(a.limit[self.watched]),
        ]
        pays = paying & (meta.life == life) & (Value.cast(meta.cls) == self.watched)
        cost = (1, meta.units)
        idle = (flight[0] == 0) & (inside[0] == 0)
        settled = ~unnumbered & (events == 0)
        for n, k in enumerate(("header", "data")):
            m.d.comb += Assert(flight[n] + inside[n] + Mux(pays, cost[n], 0) <= room[n])
            with m.If(has):
                freed = (limit[k] - room[n])[:16]
                m.d.comb += [
                    Assert((used[k] - freed)[:16] == flight[n] + inside[n]),
                    # Also as the sender sees it: what it may still use is at most what is free.
                    Assert((limit[k] - told_limit[k])[:16] < 2 * BEHIND),
                    Assert((used[k] + Mux(pays, cost[n], 0) - told_limit[k] + room[n])[:16]
                           < BEHIND + room[n]),
                ]
            with m.Elif(settled & ~changed & open):
                m.d.comb += [Assert(limit[k] == room[n]), Assert(idle)]

        # What else is always so: without it the induction would have to look further back.
        m.d.comb += [
            Assert(~(paying | asked) | (meta.life == life) | (meta.life == (life - 1)[:LIFE_BITS])),
            Assert(~pays | has), Assert(changed | (a.begun == ~unnumbered)),
            Assert(~changed | unnumbered),
            Assert(~known | settled & open), Assert(events <= 2),
            Assert(~open | began), Assert(began | idle & ~a.heard),
            Assert((flight[0] != 0) | (flight[1] == 0)),
            Assert((inside[0] != 0) | (inside[1] == 0)),
            Assert(unnumbered | (events == 0) | (a.mark == (ack + flight[0] + events)[:24])),
            Assert(~settled | known | (a.mark == ack) & (flight[0] == 0)),
        ]
        for one, late in zip(told, behind, strict=True):
            m.d.comb += [
                Assert(~one.valid | ((ack - one.ack)[:24] < AGE)),
                Assert(~one.new | settled),
                Assert(~(one.valid & one.new & one.open) | open & (late[0] < BEHIND)
                       & (late[1] < BEHIND)),
                Assert(~(one.valid & one.new & ~known) | (one.ack == a.mark)),
                Assert(~(one.valid & ~one.new & known) | ((newest - one.ack - 1)[:24] < 2 * AGE)),
                Assert(~(one.valid & ~one.new & ~known & ~unnumbered)
                       | ((a.mark - one.ack - 1)[:24] < 2 * AGE)),
            ]

    def cover(self, m, *events):
        pass


class Reaches(Conserved):
    """A TLP can be paid for in a second life, and a limit come while one is released."""

    def cover(self, m, *events):
        for event in events:
            m.d.comb += Cover(event)


def changed(*changes, intake=()):
    """Accounts with changes of their source, and of that of their intake."""
    def make(**sizes):
        with mock.patch.object(accounts_module, "LimitIntake", mutant(LimitIntake, *intake)):
            return watching(mutant(CreditAccounts, *changes))(**sizes)
    return make


#: Mutants: take limits that were told before the life began; read an old limit, which is below what
#: was used, as a large one; count a limit that is read in the cycle in which the life ends; begin a
#: life with what was used in the one before; are sure of what was left before the last TLP; are
#: sure of a header that is not left; do not know of a payment that is not written yet.
MUTANTS = {
    "credulous": changed(intake=[("self._acknowledges(new.ack, begin.data)", "C(1)")]),
    "unsigned": changed(("has & headers[15] & ~units[15])", "has & (headers != 0) & ~units[15])")),
    "stubborn": changed(
        ("(has_any | Mux(strobe & (of_class == n), 1 << at, 0)) & ~intake.lost",
         "has_any & ~intake.lost | Mux(strobe & (of_class == n), 1 << at, 0)"),
        intake=[("self.numbered_rows & ~self.lost", "self.numbered_rows")]),
    "inherited": changed((
        "Mux(self._of(self._begun, row, cls), word.as_value(), 0)", "word.as_value()")),
    "stale": changed(("Mux(self._pays(new_row, new_cls), left, enough.data)", "enough.data")),
    "paid-late": changed(("old.eq(Mux(self._pays(row, cls), payment.used.as_value(),",
                          "old.eq(Mux(C(0), 0,")),
    "last-header": changed(("~headers.all() & ", "")),
}
#: Mutant: reads the limits of the first row, whatever the TLP's.
CONFUSED = changed(("return row, cls", "return C(0, 1), cls"))


class Lasting(CreditGrants):
    """Mutant: in the first cycle of a life the limits are those of the last one."""

    def _renews(self, m):
        before = Signal.like(self.open)
        m.d.sync += before.eq(self.open)
        return self.open & ~before


class Late(CreditGrants):
    """Mutant: counts a TLP when the next one is released."""

    def elaborate(self, platform):
        released, strobe = Signal.like(self.released), Signal()
        wrapped, self.released = self.released, released
        with_strobe, self.released_strobe = self.released_strobe, strobe
        m = super().elaborate(platform)
        with m.If(with_strobe):
            m.d.sync += released.eq(wrapped)
        started = Signal()
        m.d.sync += started.eq(started | with_strobe)
        m.d.comb += strobe.eq(with_strobe & started)
        return m


@pytest.mark.parametrize("watched, depth", [
    (TlpClass.NP, 18), *(pytest.param(cls, 18, marks=pytest.mark.long)
                         for cls in (TlpClass.P, TlpClass.CPL))])
def test_credits_are_conserved(watched, depth):
    prove(Conserved(watched=watched), depth=depth, flat=True)


@pytest.mark.parametrize("row, depth", [(1, 16), *(pytest.param(row, 18, marks=pytest.mark.long)
                                                   for row in (0, 1))])
def test_credits_of_one_row_are_conserved_whatever_another_does(row, depth):
    prove(Conserved(rows=2, row=row), depth=depth, flat=True)


def test_conservation_of_a_row_catches():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Conserved(accounts=CONFUSED, rows=2, row=1), depth=16, flat=True)


def test_a_second_life_is_reached():
    prove(Reaches(), depth=18, mode="cover", flat=True)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * (name == "inherited")) for name in MUTANTS])
def test_conservation_catches(name):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Conserved(accounts=MUTANTS[name]), depth=20 if name == "unsigned" else 18, flat=True)


@pytest.mark.parametrize("grants", [Lasting, pytest.param(Late, marks=pytest.mark.long)])
def test_conservation_catches_wrong_grants(grants):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Conserved(grants=grants), depth=18, flat=True)
