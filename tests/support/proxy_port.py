"""Serial ports backed by gateware, which is simulated during each wait for an answer."""

import re

from amaranth import *
from amaranth.sim import Simulator

from dxpu.csr import RegisterFile, RegisterMux, connect_ports
from dxpu.mapping import BoxTable, HostTable
from dxpu.proxy.registers import TABLE_BASE, control_block
from dxpu.proxy.scrub import Scrub
from dxpu_boards.registers import BASES, board_block, gpu_count, stand_alone
from dxpu_model.console import summed


class RegisterSerial:
    """Replacement of ``serial.Serial`` for ``dxpu console``: lines become accesses of registers.

    Parameters
    ----------
    m : Module
        Module with the parts that have register ports.
    ports : dict of str to (int, int, RegisterPort)
        Base address, size and port of each part.
    domains : sequence of str
        Clock domains, all of the same frequency.
    """

    #: Largest number of cycles of an access.
    PATIENCE = 2000

    def __init__(self, m, ports, domains=("sync",)):
        m.submodules.mux = mux = RegisterMux({name: (base, size) for name, (base, size, _)
                                              in ports.items()})
        for name, (_, _, bus) in ports.items():
            connect_ports(m, getattr(mux, name), bus)
        self._bus, self._time, self._access, self._answer = mux.bus, 0, None, b""
        #: Function that tells whether the answer to a line gets lost.
        self.loses = lambda line: False
        #: Signals with values to set before the next access.
        self.inputs = []
        self._simulator = Simulator(m)
        for domain in domains:
            self._simulator.add_clock(1e-6, domain=domain)
        self._simulator.add_testbench(self._serve, background=True)

    async def _serve(self, ctx):
        request, response = self._bus.request, self._bus.response
        ctx.set(response.ready, 1)
        while True:
            await ctx.tick()
            for signal, value in self.inputs:
                ctx.set(signal, value)
            if self._access is None:
                continue
            ctx.set(request.p, self._access)
            ctx.set(request.valid, 1)
            await ctx.tick().until(request.ready)
            ctx.set(request.valid, 0)
            answer, = await ctx.tick().sample(response.p).until(response.valid)
            self._access, self._answer = None, (answer.data, answer.error)

    def reset_input_buffer(self):
        self._answer = None

    def write(self, data):
        self._line = data.decode().strip()
        kind, address, value = re.fullmatch(r"([RW]) (\w{4})(?: (\w{8}))?\*\w{4}",
                                            self._line).groups()
        assert self._line == summed(self._line[:-5])
        self._access = {"address": int(address, 16), "write": kind == "W",
                        "data": int(value or "0", 16)}

    def read_until(self, end):
        for _ in range(self.PATIENCE // 4):
            if self._access is None:
                break
            self._time += 4e-6
            self._simulator.run_until(self._time)
        if self.loses(self._line):
            return b""
        data, error = self._answer
        address, written = self._line[2:6], self._line[7:15]
        value = written if self._line[0] == "W" else f"{data:08x}"
        said = f"! {address}" if error else f"= {address} {value}"
        return summed(said).encode() + b"\r\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def with_board(m, proxy, board, *, paths, gpus=None):
    """Serial port of a whole proxy on a board; all other ports are unconnected. A box must have
    ``gpus``."""
    m.submodules.proxy = proxy
    m.submodules.file = file = RegisterFile(board_block(
        board, paths=paths, extra=() if gpus is None else (gpu_count(gpus), stand_alone())))
    return RegisterSerial(
        m, {"proxy": (0, 0x8000, proxy.bus), "board": (BASES["board"], file.block.size, file.bus)},
        ("sync", *(f"gmii{n}_{way}" for n in range(paths) for way in ("rx", "tx"))))


def only_table(m, role, *, rows, paths, peers, streams):
    """Serial port of a proxy's control registers and mapping table alone, without a board; and the
    table. Slots of a box are open as soon as they are bound.
    """
    shape = {"paths": paths, "streams": streams}
    m.submodules.file = file = RegisterFile(
        control_block(role, rows=rows, peers=peers, width=64, **shape))
    m.submodules.table = table = (HostTable(ports=rows, **shape) if role == "host"
                                  else BoxTable(slots=rows, **shape))
    if role == "box":
        m.submodules.scrub = scrub = Scrub(rows=rows)
        m.d.comb += [file.dirty.slots.eq(scrub.dirty), scrub.hold.eq(file.scrub.hold),
                     scrub.wiped.eq(Mux(file.dirty.written, file.dirty.slots_w, 0)),
                     scrub.row_event.eq(table.row_event),
                     scrub.open.eq(Cat(row.used for row in table.rows))]
    return RegisterSerial(m, {"control": (0, file.block.size, file.bus),
                              "table": (TABLE_BASE, table.block.size, table.bus)}), table
