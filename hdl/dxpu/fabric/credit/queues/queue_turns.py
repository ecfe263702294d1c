"""Whose turn it is among the class queues.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin

__all__ = ["QueueTurns"]


class QueueTurns(wiring.Component):
    """Chooses a queue: rows by deficit round robin, the classes of a row one after the other.

    A row goes on while it has beats left of its ``quantum``, and may overdraw, by two TLPs at most;
    what it has left is gone when it has nothing to send. What it has overdrawn is kept in
    distributed RAM.

    Two cycles from ``done`` to ``granted``. After reset each queue is named once, with ``clear``.

    Parameters
    ----------
    rows : int
    quantum : int
        Beats of a turn.
    largest : int
        Beats of the largest TLP.
    sweeps : bool
        Queues are named after a reset. If not, a queue gets its turn at once: for proofs.

    Members
    -------
    awake : ``4 * rows``
        Queues that may have a turn.
    row, cls : numbers
        Queue whose turn it is.
    granted : 1
        The queue has its turn, until ``done``.
    goes_on : 1
        The queue may send one more TLP in its turn: the row has beats left, and no other queue that
        may have a turn.
    done : 1
        Strobe: the queue has had its turn.
    beat_read : 1
        Strobe: a beat of the queue.
    clear : 1
        ``row`` and ``cls`` name a queue that is to become empty.
    """

    def __init__(self, *, rows, quantum, largest, sweeps=True):
        self._rows, self._quantum, self._sweeps = rows, quantum, sweeps
        self._shape = signed(1 + max(quantum, 2 * largest).bit_length())
        super().__init__({
            "awake": In(4 * rows),
            "row": Out(range(rows)),
            "cls": Out(2),
            "granted": Out(1),
            "goes_on": Out(1),
            "done": In(1),
            "beat_read": In(1),
            "clear": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        rows, row, cls = self._rows, self.row, self.cls
        m.submodules.debts = debts = Memory(shape=self._shape, depth=rows, init=[])
        old, write = debts.read_port(domain="comb"), debts.write_port()
        #: Beats left of the turn; it is a new row's turn.
        budget, fresh = Signal(self._shape), Signal()
        waits, mine = Signal(rows), Signal(3)
        m.d.comb += [
            waits.eq(Cat(self.awake[4 * n:4 * n + 3].any() for n in range(rows))),
            mine.eq(Cat(Cat(self.awake[n::4]).bit_select(row, 1) for n in range(3))),
            self.goes_on.eq((budget > 0) & ~Cat(mine[n] & (cls != n) for n in range(3)).any()),
            old.addr.eq(row), write.addr.eq(row),
            write.data.eq(Mux((budget < 0) & ~self.clear, budget, 0)),
        ]
        with m.FSM(init="Clear" if self._sweeps else "Pick"):
            with m.State("Clear"):
                m.d.comb += [self.clear.eq(1), write.en.eq(1)]
                m.d.sync += cls.eq(cls + 1)
                with m.If(cls == 3):
                    m.d.sync += row.eq(row + 1)
                    with m.If(row == rows - 1):
                        m.d.sync += row.eq(row)
                        m.next = "Pick"
            with m.State("Pick"):
                with m.If(waits.any()):
                    m.next = "Class"
                    with m.If(~mine.any() | (budget <= 0)):
                        m.d.comb += write.en.eq(1)
                        m.d.sync += [row.eq(round_robin(waits, row)), fresh.eq(1)]
            with m.State("Class"):
                m.d.sync += [cls.eq(round_robin(mine, cls)), fresh.eq(0)]
                with m.If(fresh):
                    m.d.sync += budget.eq(old.data + self._quantum)
                m.next = "Granted"
            with m.State("Granted"):
                m.d.comb += self.granted.eq(1)
                with m.If(self.beat_read):
                    m.d.sync += budget.eq(budget - 1)
                with m.If(self.done):
                    m.next = "Pick"
        return m
