"""Registers of a PHY: settings that must hold, and the state of the link."""

from contextlib import contextmanager
from typing import NamedTuple

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .inband import LinkSpeed, LinkStatus
from .mdio import MdioAccess, MdioPort
from .phys import Setting

__all__ = ["CONTROL", "IDENTIFIER", "LinkReader", "SettingsWriter"]

#: Numbers of registers (IEEE 802.3, 22.2.4, table 22-6).
CONTROL, STATUS, IDENTIFIER = 0, 1, 2
OFFERED, PARTNER, GIGABIT_OFFERED, GIGABIT_PARTNER = 4, 5, 9, 10

#: Settings of every PHY: autonegotiation that offers 1000BASE-T full duplex only (no flow control,
#: which the MAC lacks); not reset, looped back, powered down or isolated.
STANDARD = (
    Setting(OFFERED, 0x0FE0, 0),
    Setting(GIGABIT_OFFERED, 0xE300, 0x0200),
    Setting(CONTROL, 0xDC00, 0x1000),
)


class Step(NamedTuple):
    """One row of the writer's memory: a write of ``value``, or (``modify``) of a setting."""

    register: int
    mask: int
    value: int
    strobe: int
    modify: int
    last: int

    @staticmethod
    def shape():
        return data.StructLayout({"register": 5, "mask": 16, "value": 16, "strobe": 16,
                                  "modify": 1, "last": 1})


def steps(settings, home):
    """Rows for ``settings``, then ``home``, then the settings of every PHY (:data:`STANDARD`)."""
    rows = []
    for s in settings:
        rows += [Step(register, 0, value, 0, 0, 0) for register, value in s.select]
        rows.append(Step(s.register, s.mask, s.value, s.strobe, 1, 0))
    rows += [Step(register, 0, value, 0, 0, 0) for register, value in home]
    rows += [Step(s.register, s.mask, s.value, s.strobe, 1, 0) for s in STANDARD]
    return [*rows[:-1], rows[-1]._replace(last=1)]


class SettingsWriter(wiring.Component):
    """Reads every register of the settings, and writes each that differs.

    The writer goes through to the end even if a frame is not answered, so that no page stays
    selected.

    Parameters
    ----------
    phys : sequence of Phy
    delays : RgmiiDelays

    Members
    -------
    mdio : Out(MdioPort)
    start : In(1)
        Pulse while not busy.
    which : In(range(len(phys) + 1))
        Index in ``phys``, with ``start``. ``len(phys)`` stands for a PHY of unknown model, which
        gets the settings of every PHY only.
    phy : In(5)
        MDIO address; must not change while busy.
    done : Out(1)
        One cycle at the end; the other outputs hold until the next start.
    changed : Out(1)
        At least one register was written.
    failed : Out(1)
        A frame was not answered.
    """

    def __init__(self, phys, delays):
        programs = [steps(phy.settings(delays), phy.home) for phy in phys] + [steps((), ())]
        self._rows = [row for program in programs for row in program]
        lengths = [len(program) for program in programs]
        self._entries = [sum(lengths[:n]) for n in range(len(programs))]
        super().__init__({
            "mdio": Out(MdioPort()), "start": In(1), "which": In(range(len(programs))),
            "phy": In(5), "done": Out(1), "changed": Out(1), "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(
            shape=Step.shape(), depth=len(self._rows), init=[row._asdict() for row in self._rows])
        port = rows.read_port(domain="comb")
        at, row = Signal(range(len(self._rows))), port.data
        m.d.comb += port.addr.eq(at)
        access, update, differing = MdioAccess(m, self.mdio), Signal(16), Signal(16)
        answer = access.answer

        def proceed():
            m.d.sync += at.eq(at + 1)
            m.next = "Row"
            with m.If(row.last):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"

        with m.FSM():
            with m.State("Idle"), m.If(self.start):
                m.d.sync += [self.changed.eq(0), self.failed.eq(0)]
                with m.Switch(self.which):
                    for n, entry in enumerate(self._entries):
                        with m.Case(n):
                            m.d.sync += at.eq(entry)
                m.next = "Row"
            with m.State("Row"):
                got = access(self.phy, row.register, write=~row.modify, value=row.value)
                m.d.sync += [
                    update.eq(answer.data & ~row.mask | row.value | row.strobe),
                    differing.eq(Mux(row.modify & ~answer.error,
                                     (answer.data ^ row.value) & row.mask, 0)),
                ]
                with m.If(got):
                    m.d.sync += self.failed.eq(self.failed | answer.error)
                    m.next = "Judge"
            # A cycle of its own: a row comes late out of its memory.
            with m.State("Judge"):
                with m.If(differing.any()):
                    m.next = "Update"
                with m.Else():
                    proceed()
            with m.State("Update"), m.If(access(self.phy, row.register, write=1, value=update)):
                m.d.sync += self.changed.eq(1)
                proceed()
        return m


class LinkReader(wiring.Component):
    """Reads the link and the common abilities of both ends from the standard's registers.

    The link is up if autonegotiation has ended and the link has not failed since the last read (bit
    1.2 is sticky). Speed and duplex are the best that both ends offer (28B.3, 40.5.1). A read takes
    five MDIO frames.

    Members
    -------
    mdio : Out(MdioPort)
    start : In(1)
        Pulse while not busy.
    phy : In(5)
        MDIO address; must not change while busy.
    done : Out(1)
        One cycle at the end; the other outputs hold until the next start.
    status : Out(LinkStatus)
        Zero without a link.
    failed : Out(1)
        A frame was not answered.
    """

    mdio: Out(MdioPort())
    start: In(1)
    phy: In(5)
    done: Out(1)
    status: Out(LinkStatus)
    failed: Out(1)

    #: Abilities of both ends, best first: bit of ``common`` below, speed, full duplex.
    ORDER = ((7, LinkSpeed.M1000, 1), (6, LinkSpeed.M1000, 0), (3, LinkSpeed.M100, 1),
             (4, LinkSpeed.M100, 0), (2, LinkSpeed.M100, 0), (1, LinkSpeed.M10, 1),
             (0, LinkSpeed.M10, 0))

    def elaborate(self, platform):
        m = Module()
        access = MdioAccess(m, self.mdio)
        answer = access.answer
        link = Signal()
        # Abilities of both ends: 10BASE-T half and full duplex, 100BASE-TX half and full, -T4,
        # (pause, unused,) 1000BASE-T half and full; the same order in all registers.
        common = Signal(8)

        @contextmanager
        def read(state, register, following):
            with m.State(state), m.If(access(self.phy, register)):
                m.d.sync += self.failed.eq(self.failed | answer.error)
                m.next = following
                yield

        with m.FSM():
            with m.State("Idle"), m.If(self.start):
                m.d.sync += self.failed.eq(0)
                m.next = "Status"
            with read("Status", STATUS, "Offered"):
                m.d.sync += link.eq(answer.data[2] & answer.data[5])
            with read("Offered", OFFERED, "Partner"):
                m.d.sync += common[:5].eq(answer.data[5:10])
            with read("Partner", PARTNER, "GigabitOffered"):
                m.d.sync += common[:5].eq(common[:5] & answer.data[5:10])
            with read("GigabitOffered", GIGABIT_OFFERED, "GigabitPartner"):
                m.d.sync += common[6:].eq(answer.data[8:10])
            with read("GigabitPartner", GIGABIT_PARTNER, "Resolve"):
                m.d.sync += common[6:].eq(common[6:] & answer.data[10:12])
            with m.State("Resolve"):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"

        with m.If(link & ~self.failed):
            for n, (bit, speed, duplex) in enumerate(self.ORDER):
                with m.If(common[bit]) if n == 0 else m.Elif(common[bit]):
                    m.d.comb += [self.status.link.eq(1), self.status.speed.eq(speed),
                                 self.status.duplex.eq(duplex)]
        return m
