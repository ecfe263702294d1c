"""Commits of a manager to the rows of a mapping table: checked, and written as a whole."""

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
    """Checks a command and writes the row that it names.

    The checks are made in this order, and the first that fails gives the ``code``:

    1. the epoch is at least ``fence_epoch``, or FENCED;
    2. the row exists, or BAD_ROW;
    3. the operation id is not 0, or BAD_OPERATION.

    A command whose operation id and generation are those of the row is a repetition: DONE, and
    nothing is written. For others the checks go on:

    4. to bind, the target is valid (:class:`CommitCode`), or BAD_TARGET;
    5. the generation is newer than the row's (serial numbers modulo 2^16), or STALE. An equal one
       passes if it releases the row, or if the row is used. A row that no operation wrote since
       reset takes any generation;
    6. to bind a row in use, node, slot, stream and generation are those of the row, or IN_USE;
    7. to bind a free row, its last binding does not drain (``draining``), or DRAINING: the same
       command may be sent again.

    Then the row is written in one cycle, the code is DONE, and ``row_event`` describes the change.

    A manager must give each command an operation id of its own and each binding of a row a newer
    generation. ``fence_epoch`` never falls: an attempt is refused and counted as FENCED. ``code``,
    the new row and ``row_event`` come five cycles after ``command.strobe``; one command at a time.

    All rows are in flip-flops, for readers of all at once, and in distributed RAM, for software
    and the checks, which read one. So are their generations, for other readers of one.

    Parameters
    ----------
    rows : int
        Rows, 1 to 32.
    with_slot : bool
        The target has a slot, which must not be 0 (host table).
    paths : int
        Paths of the proxy, 1 to 16; the target must allow one of them.
    streams : int
        Streams of a peer, a power of two up to 16; the target must name one of them.
    readers : int
        Ports to read the generation of one row.

    Members
    -------
    command : In :class:`CommitCommand`
        Command to check. All but ``strobe`` must hold while ``busy``; a strobe then is ignored.
    fence : In :class:`FenceUpdate`
        Request to raise the fence epoch.
    fence_epoch : Out(32)
        Lowest epoch of a command that is not fenced.
    draining : In(rows)
        Bit n: the last binding of row n still drains, so the row must keep its peer. Sampled in the
        second cycle after ``command.strobe``. To stop the next command in any case it must be 1
        from the second cycle after ``row_event.strobe`` on.
    rows : Out array of :class:`Binding`
        All rows.
    read_row, read_binding : In(range(rows)), Out :class:`Binding`
        Number of a row, and that row in the same cycle; not valid while ``busy``.
    generation_row, generation : In(6), Out(16), arrays
        One of each per reader: number of a row that was bound since reset, and the generation of
        that row in the same cycle. Only if there are ``readers``.
    busy : Out(1)
        A command is being checked: from its strobe until ``code`` is valid.
    code, code_row, code_operation_id : Out
        Result of the last command, its row and its operation.
    row_event : Out :class:`RowEvent`
        Change of a row.
    stat_committed, stat_repeated, stat_fenced, stat_refused : Out(1)
        One pulse per command by its result; ``refused`` is every code but DONE and FENCED.
    """

    #: All counted events, and what each counts.
    STATS = {
        "stat_committed": "Commands that changed a row.",
        "stat_repeated": "Commands that repeat one that was done.",
        "stat_fenced": "Commands of an old epoch, and attempts to lower the fence epoch.",
        "stat_refused": "Commands refused for any other reason.",
    }

    def __init__(self, *, rows, with_slot, paths=16, streams=16, readers=0):
        self._count = check_rows("rows", rows)
        self._with_slot, self._paths = bool(with_slot), paths
        self._stream_bits, self._readers = exact_log2(streams), readers
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
            **({
                "generation_row": In(6).array(readers),
                "generation": Out(16).array(readers),
            } if readers else {}),
            **counted(self.STATS),
        })

    def elaborate(self, platform):
        m = Module()
        command, new = self.command, self.command.binding
        # One bit for each cycle after the strobe, at the end of which is known: the decoded row
        # number, the row, the comparisons, the code.
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

        if self._readers:
            m.submodules.generations = generations = Memory(shape=16, depth=self._count, init=[])
            write = generations.write_port()
            m.d.comb += [write.addr.eq(command.row), write.en.eq(store.en),
                         write.data.eq(new.generation)]
            for row, generation in zip(self.generation_row, self.generation, strict=True):
                read = generations.read_port(domain="comb")
                m.d.comb += [read.addr.eq(row), generation.eq(read.data)]

        with m.If(self.fence.strobe & (self.fence.epoch > self.fence_epoch)):
            m.d.sync += self.fence_epoch.eq(self.fence.epoch)
        return m

    def _store(self, m, chosen):
        """Rows in a memory; returns its write port, at the row of the command."""
        m.submodules.store = store = Memory(shape=Binding, depth=self._count, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        written = Signal(self._count)     # since reset, which leaves the memory as it is
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
        """The checks, in order."""
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
