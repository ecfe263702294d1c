"""Rows that change only as a whole, and only for a manager that knows what it does."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import counted

from .types import Binding, CommitCode, CommitCommand, FenceUpdate, RowChange, RowEvent
from .windows import check_rows
__all__ = ["RowCommit"]


class RowCommit(wiring.Component):
    """The manager's part of a mapping table: judges commands, writes whole rows.

    A command is judged in this order; the first that applies is its ``code``:

    1. epoch lower than ``fence_epoch``: FENCED;
    2. no such row: BAD_ROW;
    3. operation id 0: BAD_OPERATION;
    4. operation id and generation are the row's: DONE, and nothing happens (a repeated command);
    5. to bind, a peer that cannot be: BAD_TARGET;
    6. generation older than the row's (serially, modulo 2^16): STALE. Equal is allowed only to
       release the row or to change the paths of its binding. A row that no operation wrote since
       reset takes any;
    7. to bind a used row, unless to the same node, slot, stream and generation: IN_USE;
    8. to bind a free row the end of whose last binding is under way (``draining``): DRAINING. The
       same command may be tried again;
    9. DONE: the row is written in one cycle and ``committed`` tells what changed.

    A manager must give each command its own operation id, not 0, and each binding of a row a newer
    generation. ``fence_epoch`` only ever rises; an attempt to lower it is refused and counted as
    FENCED. Five cycles pass from ``command.strobe`` to ``code``, the new row and ``committed``, all
    in the same cycle; one command at a time.

    The rows are in flip-flops for those who need all at once, and once more in distributed RAM for
    those who look at one of them, which are software and the rules.

    Parameters
    ----------
    rows : int
        1 to 32.
    with_slot : bool
        The target has a slot, which must not be 0 (host table).
    paths : int
        Paths that there are, 1 to 16; the target must have one of them.
    streams : int
        Streams that there are, a power of two up to 16; the target's must be one of them.

    Members
    -------
    command : In :class:`CommitCommand`
        Ignored while ``busy``, but for its contents, which must hold.
    fence : In :class:`FenceUpdate`
    fence_epoch : Out(32)
    draining : In(rows)
        Bit n: the end of row n's last binding is under way, so the row must keep its peer. Looked
        at in the second cycle after ``command.strobe``; to stop the next command in any case, it
        must be high from the second cycle after ``committed.strobe`` on.
    rows : Out array of :class:`Binding`
    looked, shown : In(range(rows)), Out :class:`Binding`
        That row, in the same cycle; not while ``busy``.
    busy : Out(1)
        From the cycle of the strobe until ``code`` is there.
    code, code_row, code_operation_id : Out
        Result of the last command.
    committed : Out :class:`RowEvent`
    stat_committed, stat_repeated, stat_fenced, stat_refused : Out(1)
        One pulse for each command by result; ``refused`` is any code but DONE and FENCED.
    """

    #: All counted events, and what each counts.
    STATS = {
        "stat_committed": "Commands that changed a row.",
        "stat_repeated": "Commands that repeat one that was done.",
        "stat_fenced": "Commands of an old epoch, and attempts to lower the fence epoch.",
        "stat_refused": "Commands refused for any other reason.",
    }

    def __init__(self, *, rows, with_slot, paths=16, streams=16):
        self._count = check_rows("rows", rows)
        self._with_slot, self._paths = bool(with_slot), paths
        self._stream_bits = exact_log2(streams)
        super().__init__({
            "command": In(CommitCommand),
            "fence": In(FenceUpdate),
            "fence_epoch": Out(32),
            "draining": In(rows),
            "rows": Out(data.ArrayLayout(Binding, rows)),
            "read_row": In(range(rows)),
            "read_binding": Out(Binding),
            "busy": Out(1),
            "code": Out(CommitCode),
            "code_row": Out(6),
            "code_operation_id": Out(32),
            "row_event": Out(RowEvent),
            **counted(self.STATS),
        })

    def elaborate(self, platform):
        m = Module()
        command, new = self.command, self.command.binding
        # One bit for each cycle after the strobe: row number decoded, row there, facts there,
        # verdict there.
        steps = Signal(4)
        compared, decided = steps[2:]
        chosen = Signal(self._count)
        old = Signal(Binding, reset_less=True)
        code, write = Signal(CommitCode), Signal()
        checks = {name: Signal(name=name, reset_less=True) for name in (
            "fenced", "repeated", "bad_target", "untouched", "older", "equal", "same_target",
            "draining")}

        m.d.comb += self.busy.eq(command.strobe | steps.any())
        m.d.sync += steps.eq(Cat(command.strobe & ~steps.any(), steps))

        m.d.sync += [
            chosen.eq(Cat(command.row == n for n in range(self._count))),
            old.eq(self.read_binding),
        ]
        store = self._store(m, chosen)
        self._compare(m, checks, command, old, chosen)
        m.d.comb += self._stats(decided, code, write)
        with m.If(compared):
            self._decide(m, checks, chosen, old, new, code, write)

        m.d.sync += self.row_event.strobe.eq(0)
        with m.If(decided):
            m.d.sync += [
                self.code.eq(code),
                self.code_row.eq(command.row),
                self.code_operation_id.eq(new.operation_id),
                self.row_event.strobe.eq(write),
                self.row_event.row.eq(command.row),
                self.row_event.previous.eq(old.generation),
                self.row_event.change.eq(Mux(
                    new.used == old.used, RowChange.UPDATED,
                    Mux(new.used, RowChange.BOUND, RowChange.RELEASED))),
            ]
            m.d.comb += store.en.eq(write)
            for n, row in enumerate(self.rows):
                with m.If(write & chosen[n]):
                    m.d.sync += row.eq(store.data)
        with m.If(new.used):
            m.d.comb += store.data.eq(new)
        with m.Else():
            m.d.comb += [store.data.eq(old), store.data.used.eq(0),
                         store.data.generation.eq(new.generation),
                         store.data.operation_id.eq(new.operation_id)]

        with m.If(self.fence.strobe & (self.fence.epoch > self.fence_epoch)):
            m.d.sync += self.fence_epoch.eq(self.fence.epoch)
        return m

    def _store(self, m, chosen):
        """The rows in a memory; returns its write port, at the row of the command."""
        m.submodules.store = store = Memory(shape=Binding, depth=self._count, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        written = Signal(self._count)     # since reset: the memory knows nothing of that
        m.d.sync += written.eq(written | Mux(write.en, chosen, 0))
        m.d.comb += [
            write.addr.eq(self.command.row),
            read.addr.eq(Mux(self.busy, self.command.row, self.read_row)),
            self.read_binding.eq(Mux(written.bit_select(read.addr, 1), read.data, 0)),
        ]
        return write

    def _compare(self, m, checks, command, old, chosen):
        """Compare the command with the row and the fence."""
        new = command.binding
        age = Signal(16)
        m.d.comb += age.eq(new.generation - old.generation)
        peer_ok = new.node.any() & ~new.node.all() & new.paths[:self._paths].any()
        peer_ok &= ~new.stream[self._stream_bits:].any()
        if self._with_slot:
            peer_ok &= new.slot.any()
        same_operation = new.operation_id == old.operation_id
        m.d.sync += [
            checks["fenced"].eq(command.epoch < self.fence_epoch),
            checks["repeated"].eq(same_operation & (new.generation == old.generation)),
            checks["bad_target"].eq(new.used & ~peer_ok),
            checks["untouched"].eq(~old.operation_id.any()),
            checks["older"].eq(age[15]),
            checks["draining"].eq((chosen & self.draining).any()),
            checks["equal"].eq(new.generation == old.generation),
            checks["same_target"].eq(Cat(new.node, new.slot, new.stream)
                                    == Cat(old.node, old.slot, old.stream)),
        ]

    def _decide(self, m, checks, chosen, old, new, code, write):
        """The rules, in order."""
        update = old.used & checks["equal"] & checks["same_target"]
        stale = ~checks["untouched"] & (
            checks["older"] | (checks["equal"] & new.used & ~old.used))
        m.d.sync += [write.eq(0), code.eq(CommitCode.DONE)]
        with m.If(checks["fenced"]):
            m.d.sync += code.eq(CommitCode.FENCED)
        with m.Elif(~chosen.any()):
            m.d.sync += code.eq(CommitCode.BAD_ROW)
        with m.Elif(~new.operation_id.any()):
            m.d.sync += code.eq(CommitCode.BAD_OPERATION)
        with m.Elif(~checks["repeated"]):
            with m.If(checks["bad_target"]):
                m.d.sync += code.eq(CommitCode.BAD_TARGET)
            with m.Elif(stale):
                m.d.sync += code.eq(CommitCode.STALE)
            with m.Elif(new.used & old.used & ~update):
                m.d.sync += code.eq(CommitCode.IN_USE)
            with m.Elif(new.used & ~old.used & checks["draining"]):
                m.d.sync += code.eq(CommitCode.DRAINING)
            with m.Else():
                m.d.sync += write.eq(1)

    def _stats(self, decided, code, write):
        refused_fence = self.fence.strobe & (self.fence.epoch < self.fence_epoch)
        return [
            self.stat_committed.eq(decided & write),
            self.stat_repeated.eq(decided & (code == CommitCode.DONE) & ~write),
            self.stat_fenced.eq((decided & (code == CommitCode.FENCED)) | refused_fence),
            self.stat_refused.eq(decided & (code != CommitCode.FENCED)
                                 & (code != CommitCode.DONE)),
        ]
