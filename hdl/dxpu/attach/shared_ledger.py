"""Credits for TLPs from the PCIe ports of all slots.

Ref: PCIe Base 5.0, 2.6.1
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.rows import UNIT_BITS, ClassMeta
from dxpu.tlp.types import TlpClass

from .ingress import CreditLimits, divide

__all__ = ["SharedLedger"]


class GrantTotals(wiring.Component):
    """Totals of credits by number, in distributed RAM: a value of its own at reset, then sums.

    Parameters
    ----------
    initial : list of pairs of int
        Headers and units at reset, by number.

    Members
    -------
    released_strobe, total_index, units : 1, ``range(len(initial))``, units
        Strobe: one header more, and so many units of data.
    total : :class:`~.ingress.CreditLimits`
        Sum of the strobe; in the same cycle.
    granted_index, granted_total : ``range(len(initial))``, :class:`~.ingress.CreditLimits`
        Total of another number, without the strobe of this cycle.
    """

    def __init__(self, initial):
        self._initial = initial
        index = range(len(initial))
        super().__init__({
            "released_strobe": In(1), "total_index": In(index), "units": In(UNIT_BITS),
            "total": Out(CreditLimits),
            "granted_index": In(index), "granted_total": Out(CreditLimits),
        })

    def elaborate(self, platform):
        m = Module()
        count = len(self._initial)
        m.submodules.words = words = Memory(shape=CreditLimits, depth=count, init=[])
        write = words.write_port()
        # A word that was not written since reset counts as the initial one.
        written = Signal(count)

        def total(number, name):
            port, value = words.read_port(domain="comb"), Signal(CreditLimits, name=name)
            headers, units = (Array(pair[n] for pair in self._initial)[number] for n in range(2))
            m.d.comb += port.addr.eq(number)
            with m.If(written.bit_select(number, 1)):
                m.d.comb += value.eq(port.data)
            with m.Else():
                m.d.comb += [value.header.eq(headers), value.data.eq(units)]
            return value

        old = total(self.total_index, "old")
        m.d.comb += [
            self.total.header.eq(old.header + 1), self.total.data.eq(old.data + self.units),
            write.en.eq(self.released_strobe), write.addr.eq(self.total_index),
            write.data.eq(self.total),
            self.granted_total.eq(total(self.granted_index, "read")),
        ]
        with m.If(self.released_strobe):
            m.d.sync += written.bit_select(self.total_index, 1).eq(1)
        return m


class SharedLedger(wiring.Component):
    """A :class:`~.ingress.CreditLedger` for each slot, with one adder and the totals in a memory.

    Parameters
    ----------
    slots : int
    space : int
        Size of the ingress buffer of a slot in bytes.

    Members
    -------
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Strobe: a TLP has left the buffer of slot ``row``. ``life`` is not used.
    hold_np : ``slots``
        Bit n: withhold released credits of non-posted requests of slot n until this is 0.
    slot : array of ``rx_p``, ``rx_np``, ``rx_cpl`` (:class:`~.ingress.CreditLimits`)
        Limits of a slot by class. Those of posted requests and completions rise one cycle after
        ``released_strobe``. Those of non-posted requests rise slot by slot, at most ``slots + 1``
        cycles after ``released_strobe``, or ``slots`` cycles after ``hold_np`` fell.
    """

    def __init__(self, *, slots, space):
        #: Headers and units at reset, by class.
        self.initial = divide(space)
        super().__init__({
            "released": In(ClassMeta),
            "released_strobe": In(1),
            "hold_np": In(slots),
            "slot": Out(wiring.Signature({
                f"rx_{cls.name.lower()}": Out(CreditLimits) for cls in TlpClass})).array(slots),
        })
        self._slots = slots

    def elaborate(self, platform):
        m = Module()
        slots, initial = self._slots, self.initial
        bits = max(1, (slots - 1).bit_length())
        # Number: the slot, and above it whether the class is that of completions.
        m.submodules.others = others = GrantTotals(
            [initial[cls] for cls in (TlpClass.P, TlpClass.CPL) for _ in range(1 << bits)])
        m.submodules.np = np = GrantTotals([initial[TlpClass.NP]] * slots)
        released, is_np = self.released, self.released.cls == TlpClass.NP
        is_cpl = released.cls == TlpClass.CPL
        # The slot whose limits of non-posted requests are brought up to date.
        turn = Signal(range(slots))
        m.d.sync += turn.eq(Mux(turn == slots - 1, 0, turn + 1))
        m.d.comb += [
            others.total_index.eq(Cat(released.row[:bits], is_cpl)),
            others.units.eq(released.units),
            others.released_strobe.eq(self.released_strobe & ~is_np),
            np.total_index.eq(released.row), np.units.eq(released.units),
            np.released_strobe.eq(self.released_strobe & is_np),
            np.granted_index.eq(turn),
        ]
        for n, limits in enumerate(self.slot):
            strobe = others.released_strobe & (released.row[:bits] == n)
            for cls, port, load, total in (
                    (TlpClass.P, limits.rx_p, strobe & ~is_cpl, others.total),
                    (TlpClass.NP, limits.rx_np, (turn == n) & ~self.hold_np[n], np.granted_total),
                    (TlpClass.CPL, limits.rx_cpl, strobe & is_cpl, others.total)):
                headers, units = initial[cls]
                limit = Signal(CreditLimits, name=f"rx_{cls.name.lower()}{n}",
                               init={"header": headers, "data": units})
                m.d.comb += port.eq(limit)
                with m.If(load):
                    m.d.sync += limit.eq(total)
        return m
