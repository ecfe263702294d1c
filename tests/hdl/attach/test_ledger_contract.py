"""Contract of dxpu.attach.ingress: all credits that came free are granted again, each once."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.attach import shared_ledger
from dxpu.attach.ingress import CreditLedger
from dxpu.attach.shared_ledger import GrantTotals, SharedLedger
from dxpu.rows import ClassMeta
from dxpu.tlp.types import TlpClass, TlpInfo
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

DEPTH = 8
SPACE = 2048
#: Of the ledger of several slots.
SHARED_DEPTH = 7


class LedgerContract(wiring.Component):
    """What was granted first and what was released since is granted, of each class by itself.

    A TLP frees one header and a unit of data for each 16 bytes of its payload, a part of them a
    whole one. What non-posted requests free while ``hold_np`` is high is granted in the cycle after
    it has fallen; until then their limits stand.

    Ref: PCIe Base 6.0, 2.6.1 (a data credit is 4 DW; CREDITS_ALLOCATED)
    """

    released: In(1)
    hold_np: In(1)
    info: In(TlpInfo)

    def __init__(self, design=CreditLedger):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(space=SPACE)
        m.d.comb += [dut.released_strobe.eq(self.released), dut.hold_np.eq(self.hold_np),
                     dut.info.eq(self.info)]
        dwords = self.info.payload_dwords
        units = (dwords >> 2) + dwords[:2].any()
        begun, held = Signal(), Signal()
        m.d.sync += [begun.eq(1), held.eq(self.hold_np)]
        m.d.comb += Assume(dwords <= 1024)
        # A buffer of this size holds no more at a time.
        m.d.comb += Assume((self.info.cls != TlpClass.NP) | (dwords <= 8))
        waiting = Signal(8)
        with m.If(self.hold_np & self.released & (self.info.cls == TlpClass.NP)):
            m.d.sync += waiting.eq(waiting + 1)
        with m.Elif(~self.hold_np):
            m.d.sync += waiting.eq(0)
        m.d.comb += Assume(waiting < dut.initial[TlpClass.NP][0])
        for cls, limits in ((TlpClass.P, dut.rx_p), (TlpClass.NP, dut.rx_np),
                            (TlpClass.CPL, dut.rx_cpl)):
            first = {name: Signal(16, name=f"first_{name}_{cls.name}")
                     for name in ("header", "data")}
            freed = {name: Signal(16, name=f"freed_{name}_{cls.name}") for name in first}
            with m.If(self.released & (self.info.cls == cls)):
                m.d.sync += [freed["header"].eq(freed["header"] + 1),
                             freed["data"].eq(freed["data"] + units)]
            for name in first:
                limit, before = getattr(limits, name), Signal(16, name=f"was_{name}_{cls.name}")
                m.d.sync += before.eq(limit)
                with m.If(~begun):
                    m.d.sync += first[name].eq(limit)
                    m.d.comb += Assert(limit > 0)
                with m.Elif(held & (cls == TlpClass.NP)):
                    m.d.comb += Assert(limit == before)
                with m.Else():
                    m.d.comb += Assert(limit == (first[name] + freed[name])[:16])
        self.cover(m, dut, waiting)
        return m

    def cover(self, m, dut, waiting):
        """A place for a ``Cover``."""


class Reached(LedgerContract):
    """Two requests are held and granted again."""

    def cover(self, m, dut, waiting):
        first = Signal(16)
        begun = Signal()
        m.d.sync += begun.eq(1)
        with m.If(~begun):
            m.d.sync += first.eq(dut.rx_np.header)
        two = Signal()
        m.d.sync += two.eq(two | (waiting == 2))
        m.d.comb += Cover(two & (dut.rx_np.header == first + 2))


MUTANTS = {
    "held credits are lost": (
        "header.eq(header + withheld + freed)", "header.eq(header + freed)"),
    "held units are lost": (
        "payload.eq(payload + withheld_units + Mux(freed, units, 0))",
        "payload.eq(payload + Mux(freed, units, 0))"),
    "held credits are granted twice": (
        "withheld.eq(0), withheld_units.eq(0),", "withheld_units.eq(0),"),
    "nothing is held": ("with m.If(self.hold_np):", "with m.If(0):"),
    "what comes free while the hold ends is lost": (
        "header.eq(header + withheld + freed)", "header.eq(header + withheld)"),
    "one request is held at most": ("withheld.eq(withheld + freed)", "withheld.eq(freed)"),
    "units of one request are held at most": (
        "withheld_units.eq(withheld_units + Mux", "withheld_units.eq(Mux"),
    "a part of a unit is none": ("self.info.payload_dwords + 3", "self.info.payload_dwords"),
    "each class frees posted credits": (
        "(self.info.cls == cls)", "((self.info.cls == cls) | (cls == TlpClass.P))"),
}


def test_all_that_comes_free_is_granted_again():
    prove(LedgerContract(), depth=DEPTH)


def test_what_was_held_is_granted():
    prove(Reached(), depth=DEPTH, mode="cover")


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_catches(name):
    with pytest.raises(ProofFailed):
        prove(LedgerContract(mutant(CreditLedger, MUTANTS[name])), depth=DEPTH)


class SharedLedgerContract(wiring.Component):
    """One slot, whichever; TLPs of the others leave as they like.

    What was granted first and what was released since is granted, of posted requests and
    completions in the next cycle. Of non-posted requests it is granted when ``hold_np`` is low for
    as many cycles as there are slots. Nothing more is granted ever, and nothing while it is high.
    """

    SLOTS = 2

    released: In(1)
    meta: In(ClassMeta)
    hold_np: In(SLOTS)
    slot: In(range(SLOTS))

    def __init__(self, design=SharedLedger):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(slots=self.SLOTS, space=SPACE)
        begun, slot = Signal(), Signal.like(self.slot)
        m.d.sync += [begun.eq(1), slot.eq(self.slot)]
        m.d.comb += [
            dut.released.eq(self.meta), dut.released_strobe.eq(self.released),
            dut.hold_np.eq(self.hold_np),
            Assume(~ResetSignal()), Assume(self.slot < self.SLOTS),
            Assume(~begun | (self.slot == slot)),
            Assume(self.meta.row < self.SLOTS), Assume(Value.cast(self.meta.cls) < 3),
            Assume(self.meta.units < 4),
        ]
        mine, held = self.released & (self.meta.row == self.slot), Signal()
        m.d.comb += held.eq(self.hold_np.bit_select(self.slot, 1))
        for cls in TlpClass:
            name = cls.name.lower()
            limit, first, total, before = (
                Signal(32, name=f"{part}_{name}") for part in ("limit", "first", "total", "before"))
            header, units, quiet = Signal(16), Signal(16), Signal(3, name=f"quiet_{name}")
            m.d.comb += [
                limit.eq(Array(getattr(s, f"rx_{name}").as_value() for s in dut.slot)[self.slot]),
                total.eq(Cat((first[:16] + header)[:16], (first[16:] + units)[:16])),
            ]
            frees = mine & (self.meta.cls == cls)
            with m.If(frees):
                m.d.sync += [header.eq(header + 1), units.eq(units + self.meta.units)]
            m.d.sync += [before.eq(limit), quiet.eq(Mux(
                frees | held, 0, Mux(quiet == 7, 7, quiet + 1)))]
            with m.If(~begun):
                m.d.sync += first.eq(limit)
            with m.Elif(cls == TlpClass.NP):
                m.d.comb += [
                    Assert((limit[:16] - first[:16])[:16] <= header),
                    Assert((limit[16:] - first[16:])[:16] <= units),
                    Assert((quiet < self.SLOTS) | (limit == total)),
                ]
                held_before = Signal()
                m.d.sync += held_before.eq(held)
                m.d.comb += Assert(~held_before | (limit == before))
            with m.Else():
                m.d.comb += Assert(limit == total)
        return m


SHARED_MUTANTS = {
    "nothing is held": (SharedLedger, (" & ~self.hold_np[n]", "")),
    "one slot has no turn": (SharedLedger, ("turn == slots - 1", "turn == slots - 2")),
    "completions free posted credits": (
        SharedLedger, ("strobe & ~is_cpl, others", "strobe, others")),
    "a slot frees credits of another": (
        SharedLedger, ("others.released_strobe & (released.row[:bits] == n)",
                       "others.released_strobe")),
    "units are not added": (GrantTotals, ("old.data + self.units", "old.data")),
    "what was released before is forgotten": (
        GrantTotals, ("written.bit_select(self.total_index, 1).eq(1)", "written.eq(0)")),
}


def test_all_that_comes_free_is_granted_again_to_each_slot():
    prove(SharedLedgerContract(), depth=SHARED_DEPTH, flat=True)


@pytest.mark.parametrize("name", SHARED_MUTANTS)
def test_contract_of_slots_catches(name, monkeypatch):
    component, change = SHARED_MUTANTS[name]
    design = mutant(component, change)
    if component is GrantTotals:
        monkeypatch.setattr(shared_ledger, "GrantTotals", design)
        design = SharedLedger
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(SharedLedgerContract(design), depth=SHARED_DEPTH, flat=True)
