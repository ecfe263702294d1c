"""Host table and box table: rows, their registers, and the lookups of the host."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import counted
from dxpu.csr import RegisterFile, RegisterPort, connect_ports
from dxpu.stream import connect

from .commit import RowCommit
from .lookup import Lookup, SharedLookup
from .registers import box_block, host_block
from .types import (
    BoxRow, ConfigUpdate, HostRow, LookupRequest, LookupResult, PortWindows, RowEvent,
)
from .windows import WindowFollower, WindowMemory, check_rows, register_values

__all__ = ["BoxTable", "HostTable"]


class HostTable(wiring.Component):
    """Host mapping table: one row per downstream port (paper, Table 2).

    Bus numbers, windows and enables follow the configuration writes of the operating system
    (:class:`~dxpu.mapping.WindowFollower`) whether the row is bound or not, since an operating
    system assigns windows before a GPU is there. The rest of a row belongs to the manager, through
    the registers of :func:`~dxpu.mapping.host_block` and the checks of
    :class:`~dxpu.mapping.RowCommit`.

    Lookups are independent: latency two cycles, throughput one lookup per cycle each, results in
    order. They ignore ``used``: the switch decides about traffic for a port that is not bound. With
    ``shared`` they take turns and more cycles (:class:`~dxpu.mapping.lookup.SharedLookup`) for less
    logic.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.
    lookups : int
        Lookup clients, 1 or more.
    shared : bool
        All clients share one search.
    paths, streams, readers : int
        Those of :class:`~dxpu.mapping.RowCommit`.

    Members
    -------
    lookup0, lookup1, ... : In stream of :class:`LookupRequest`
        Values that each client looks up.
    result0, result1, ... : Out stream of :class:`LookupResult`
        Results of each client.
    config : In :class:`ConfigUpdate`
        Updates of configuration registers of the virtual switch.
    bus : In :class:`~dxpu.csr.RegisterPort`
        Registers of the table.
    rows : Out array of :class:`HostRow`
        All rows.
    draining : In(ports)
        Bit n: the UNBIND of row n's last binding is not sent yet, and the row cannot be bound. It
        must be 1 from the second cycle after ``row_event.strobe`` on.
    row_event : Out :class:`RowEvent`
        Change of a row.
    generation_row, generation : arrays
        Those of :class:`~dxpu.mapping.RowCommit`.
    stat_committed, stat_repeated, stat_fenced, stat_refused : Out(1)
        Those of :class:`~dxpu.mapping.RowCommit`.
    """

    def __init__(self, *, ports=8, lookups=2, shared=False, paths=16, streams=16, readers=0):
        self._ports, self._readers = check_rows("ports", ports), readers
        self._shape = {"paths": paths, "streams": streams, "readers": readers}
        if not isinstance(lookups, int) or lookups < 1:
            raise ValueError(f"lookups must be a positive integer, not {lookups!r}")
        self._lookups, self._shared = lookups, shared
        self.block = host_block(ports)
        members = {
            "config": In(ConfigUpdate),
            "bus": In(RegisterPort()),
            "rows": Out(data.ArrayLayout(HostRow, ports)),
            "draining": In(ports),
            "row_event": Out(RowEvent),
            **({
                "generation_row": In(6).array(readers),
                "generation": Out(16).array(readers),
            } if readers else {}),
            **counted(RowCommit.STATS),
        }
        for n in range(lookups):
            members[f"lookup{n}"] = In(stream.Signature(LookupRequest))
            members[f"result{n}"] = Out(stream.Signature(LookupResult))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.follower = follower = WindowFollower(ports=self._ports)
        m.d.comb += follower.config.eq(self.config)
        file, commit = _managed(m, self, rows=self._ports, with_slot=True, **self._shape)
        ends, windows = [], Signal(PortWindows)  # those that software reads
        if self._shared:
            m.submodules.lookup = lookup = SharedLookup(ports=self._ports, lookups=self._lookups)
            m.d.comb += [
                lookup.windows.eq(follower.windows),
                lookup.upstream_windows.eq(follower.upstream_windows),
                lookup.config.eq(self.config),
                lookup.read.eq(file.mem_request), lookup.read_port.eq(commit.read_row),
                file.mem_done.eq(lookup.read_done), windows.eq(lookup.read_windows),
            ]
            ends += [(getattr(lookup, f"request{n}"), getattr(lookup, f"result{n}"))
                     for n in range(self._lookups)]
        else:
            for n in range(self._lookups):
                m.submodules[f"lookup{n}"] = lookup = Lookup(ports=self._ports)
                m.d.comb += [lookup.windows.eq(follower.windows),
                             lookup.upstream_windows.eq(follower.upstream_windows)]
                ends.append((lookup.request, lookup.result))
            m.submodules.memory = memory = WindowMemory(ports=self._ports)
            m.d.comb += [memory.config.eq(self.config), memory.port.eq(commit.read_row),
                         file.mem_done.eq(memory.ready), windows.eq(memory.windows)]
        for n, (request, result) in enumerate(ends):
            connect(m, wiring.flipped(getattr(self, f"lookup{n}")), request)
            connect(m, result, wiring.flipped(getattr(self, f"result{n}")))

        for n in range(self._readers):
            m.d.comb += [commit.generation_row[n].eq(self.generation_row[n]),
                         self.generation[n].eq(commit.generation[n])]
        _read_registers(m, file, commit.read_binding, register_values(windows, commit.read_row))
        for n, (row, binding, w) in enumerate(zip(self.rows, commit.rows, follower.windows,
                                                  strict=True)):
            _fill_row(m, row, binding)
            m.d.comb += [
                row.slot.eq(binding.slot),
                row.secondary.eq(w.secondary),
                row.subordinate.eq(w.subordinate),
                row.device.eq(n),
                row.memory_base.eq(Cat(C(0, 20), w.memory_base)),
                row.memory_limit.eq(Cat(C(0xfffff, 20), w.memory_limit)),
                row.prefetch_base.eq(Cat(C(0, 20), w.prefetch_base)),
                row.prefetch_limit.eq(Cat(C(0xfffff, 20), w.prefetch_limit)),
                row.io_base.eq(Cat(C(0, 12), w.io_base)),
                row.io_limit.eq(Cat(C(0xfff, 12), w.io_limit)),
            ]
        return m


class BoxTable(wiring.Component):
    """Box mapping table: one row per slot; row n is slot n + 1 (paper, Table 3).

    Rows belong to the manager, through the registers of :func:`~dxpu.mapping.box_block` and the
    checks of :class:`~dxpu.mapping.RowCommit`. Only ``valid`` is set by the box. A slot without a
    GPU can be bound: the manager reads ``valid`` and decides.

    Parameters
    ----------
    slots : int
        Slots, 1 to 32.
    paths, streams : int
        Those of :class:`~dxpu.mapping.RowCommit`.

    Members
    -------
    present : In(slots)
        Bit n: a GPU is in slot n + 1; ``valid`` of the row.
    bus : In :class:`~dxpu.csr.RegisterPort`
        Registers of the table.
    rows : Out array of :class:`BoxRow`
        All rows.
    draining : In(slots)
        Bit n: row n cannot be bound yet; that of :class:`~dxpu.mapping.RowCommit`.
    row_event : Out :class:`RowEvent`
        Change of a row.
    stat_committed, stat_repeated, stat_fenced, stat_refused : Out(1)
        Those of :class:`~dxpu.mapping.RowCommit`.
    """

    def __init__(self, *, slots=8, paths=16, streams=16):
        self._slots = check_rows("slots", slots)
        self._shape = {"paths": paths, "streams": streams}
        self.block = box_block(slots)
        super().__init__({
            "present": In(slots),
            "bus": In(RegisterPort()),
            "rows": Out(data.ArrayLayout(BoxRow, slots)),
            "draining": In(slots),
            "row_event": Out(RowEvent),
            **counted(RowCommit.STATS),
        })

    def elaborate(self, platform):
        m = Module()
        file, commit = _managed(m, self, rows=self._slots, with_slot=False, **self._shape)
        for n, (row, binding) in enumerate(zip(self.rows, commit.rows, strict=True)):
            _fill_row(m, row, binding)
            m.d.comb += [row.valid.eq(self.present[n]), row.slot.eq(n + 1)]
        read_row = commit.read_row
        _read_registers(m, file, commit.read_binding, valid=self.present.bit_select(read_row, 1),
                        slot=read_row + 1)
        return m


def _managed(m, table, *, with_slot, **shape):
    """The registers and the commit engine of ``table``, connected."""
    m.submodules.file = file = RegisterFile(table.block)
    m.submodules.commit = commit = RowCommit(with_slot=with_slot, **shape)
    connect_ports(m, wiring.flipped(table.bus), file.bus)
    binding = commit.command.binding
    m.d.comb += [
        file.stall.eq(commit.busy),
        commit.read_row.eq(file.mem_address // _rows(file).stride),
        commit.draining.eq(table.draining),
        file.fence_epoch.value.eq(commit.fence_epoch),
        commit.fence.strobe.eq(file.fence_epoch.written),
        commit.fence.epoch.eq(file.fence_epoch.value_w),
        commit.command.strobe.eq(file.commit.written),
        commit.command.row.eq(file.commit.row),
        commit.command.epoch.eq(file.epoch.value),
        binding.used.eq(file.commit.used),
        binding.node.eq(file.target.node),
        binding.slot.eq(file.target.slot if with_slot else 0),
        binding.stream.eq(file.target.stream),
        binding.paths.eq(file.paths.mask),
        binding.generation.eq(file.commit.generation),
        binding.operation_id.eq(file.operation_id.value),
        file.result.code.eq(commit.code),
        file.result.row.eq(commit.code_row),
        file.result_operation_id.value.eq(commit.code_operation_id),
        table.row_event.eq(commit.row_event),
        *(getattr(table, stat).eq(getattr(commit, stat)) for stat in commit.STATS),
    ]
    return file, commit


def _fill_row(m, row, binding):
    """The manager's part of a row, without the slot."""
    for name in ("used", "node", "stream", "paths", "generation", "operation_id"):
        m.d.comb += row[name].eq(binding[name])


def _rows(file):
    """Description of the rows of a table's registers."""
    return next(e for e in file.block.entries if e.name == "row")


def _read_registers(m, file, binding, others=None, **fields):
    """Values of the registers of a row, that which is read.

    ``others`` maps names of registers to their values. Those of
    :func:`dxpu.mapping.registers._binding` come from ``fields`` where they are given, else from the
    ``binding``.
    """
    rows = _rows(file)
    with m.Switch(file.mem_address[:exact_log2(rows.stride)]):
        for register in rows.registers:
            with m.Case(register.address):
                if others and register.name in others:
                    m.d.comb += file.mem_read_data.eq(others[register.name])
                    continue
                for f in register.fields:
                    name = "operation_id" if f.name == "value" else f.name
                    m.d.comb += file.mem_read_data[f.offset:f.offset + f.width].eq(
                        fields[name] if name in fields else binding[name])
