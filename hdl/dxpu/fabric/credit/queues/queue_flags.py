"""Which queues of a direction hold TLPs, and which of those may be asked about.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["QueueFlags"]


class QueueFlags(wiring.Component):
    """Two bits of each queue: whether it holds a TLP, and whether its head may leave, as far as is
    known.

    A strobe takes effect in the next cycle; ``wake`` in the one after that. ``wake`` prevails over
    a ``refused`` of the cycle after it, so the answer to a question may be a cycle old.

    Parameters
    ----------
    rows : int

    Members
    -------
    parked, parked_queue : 1, number of a queue
        A TLP has entered a queue.
    emptied, refused, dequeued_queue : 1, 1, number of a queue
        The last TLP has left a queue (unless another one enters in this cycle); its head may not
        leave.
    wake : ``rows``
        The heads of row n may leave now.
    passed : 1
        As ``wake``, for the row of ``dequeued_queue``, in the next cycle.
    filled, awake : ``4 * rows``
        By number of the queue.
    """

    def __init__(self, *, rows):
        queue = range(4 * rows)
        self._rows = rows
        super().__init__({
            "parked": In(1), "parked_queue": In(queue),
            "emptied": In(1), "refused": In(1), "dequeued_queue": In(queue),
            "wake": In(rows), "passed": In(1),
            "filled": Out(4 * rows), "awake": Out(4 * rows),
        })

    def elaborate(self, platform):
        m = Module()
        rows, wakes = self._rows, Signal(self._rows)
        m.d.sync += wakes.eq(self.wake)
        # Rows and classes are decoded apart: that takes a LUT for each of them, not for each queue.
        entered, left, woken = Signal(rows), Signal(rows), Signal(rows)
        m.d.comb += [
            entered.eq(Cat(self.parked & (self.parked_queue[2:] == n) for n in range(rows))),
            left.eq(Cat(self.dequeued_queue[2:] == n for n in range(rows))),
            woken.eq(wakes | Mux(self.passed, left, 0)),
        ]
        asleep = Signal(4 * rows)
        for cls in range(3):
            enters, empties, refused = (Signal(name=f"{name}{cls}") for name in (
                "enters", "empties", "refused"))
            m.d.comb += [
                enters.eq(self.parked_queue[:2] == cls),
                empties.eq(self.emptied & (self.dequeued_queue[:2] == cls)),
                refused.eq(self.refused & (self.dequeued_queue[:2] == cls)),
            ]
            for row in range(rows):
                n = 4 * row + cls
                m.d.sync += [
                    self.filled[n].eq(self.filled[n] & ~(left[row] & empties)
                                      | entered[row] & enters),
                    asleep[n].eq((asleep[n] | left[row] & refused) & ~woken[row]),
                ]
        m.d.comb += self.awake.eq(self.filled & ~asleep)
        return m
