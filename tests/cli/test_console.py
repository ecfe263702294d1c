"""``dxpu console``: the program, against a model of the board and against the gateware."""

import random
import termios

import pytest
from amaranth import *
from amaranth.sim import Simulator

from dxpu.console import Console, UartReceiver, UartTransmitter
from dxpu.csr import RegisterFile, connect_ports
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.registers import control_block
from dxpu_cli.console import command as console
from dxpu_cli.console.command import ConsoleError, RegisterLine, map_of
from dxpu_cli.main import main
from dxpu_model.console import answer
from dxpu_tools.errors import UserError
from tests.support.testbench import seed

SHAPE = {"paths": 2, "peers": 2, "streams": 1}
MAP = BoxProxy(64, slots=3, **SHAPE).registers


def board():
    """Registers of a box after reset, byte address to value."""
    return {base + p.address: p.register.reset for base, block in MAP.blocks.values()
            for p in block.placed}


class Port:
    """A serial port with a board behind; ``bad`` damages what passes, either way."""

    def __init__(self, registers, bad=lambda data: data):
        self._registers, self._bad = registers, bad
        self._received = b""
        self.lines = []

    def reset_input_buffer(self):
        self._received = b""

    def write(self, data):
        heard = self._bad(data).decode("latin-1")
        for line in heard.split("\n")[:-1]:
            self.lines.append(line)
            said = answer(line, self._registers)
            if said is not None:
                self._received += self._bad(said.encode() + b"\r\n")

    def read_until(self, end):
        line, found, self._received = self._received.partition(end)
        return line + found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def run(monkeypatch, capsys, port, *argv):
    """Run ``dxpu console``; returns its status and what it said."""
    monkeypatch.setattr("serial.serial_for_url", lambda *_, **__: port)
    status = main(["console", "/dev/there", *argv])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_registers_by_name(monkeypatch, capsys):
    registers = board()
    registers[MAP.address("control.session[1].hello")] = 0x0003_0006

    def say(*argv):
        return run(monkeypatch, capsys, Port(registers), *argv)

    assert say("read", "control.session[1].hello") == (
        0, f"{MAP.address('control.session[1].hello'):04x}  control.session[1].hello           "
           "00030006  phase=0x6 boot=0x3\n")
    # A field keeps the others of its register, a number does not.
    assert say("write", "control.fabric", "packing_limit=1500")[0] == 0
    assert registers[MAP.address("control.fabric")] == 1500 | 125 << 16
    assert say("write", "control.fabric", "0x40")[0] == 0
    assert registers[MAP.address("control.fabric")] == 0x40
    # A pulse is not held: the others stay 0.
    registers[MAP.address("control.reset")] = 0b101
    say("write", "control.reset", "slots=2")
    assert registers[MAP.address("control.reset")] == 2
    status, text = say("read", "control.peer[*].node")
    assert status == 0 and [row.split()[1] for row in text.splitlines()] == [
        "control.peer[0].node", "control.peer[1].node"]
    status, text = say("list")
    assert len(text.splitlines()) == len(registers) and "control.identity" in text


def test_counters_that_are_not_zero(monkeypatch, capsys):
    registers = board()
    registers[MAP.address("counters.mac1_rx_bad_fcs")] = 7
    assert run(monkeypatch, capsys, Port(registers), "counters") == (
        0, "         7  mac1_rx_bad_fcs\n")


def test_counters_that_rise(monkeypatch, capsys):
    registers, port = board(), Port(board())
    address = MAP.address("counters.mac0_tx_good")
    registers[address] = 0xFFFF_FFFE
    port = Port(registers)

    def sleep(seconds):
        if registers[address] == 3:
            raise KeyboardInterrupt
        registers[address] = 3

    monkeypatch.setattr(console.time, "sleep", sleep)
    assert run(monkeypatch, capsys, port, "counters", "--watch", "1") == (
        130, "4294967294  mac0_tx_good\n         3  mac0_tx_good  +5\n"
             "dxpu console: interrupted\n")


@pytest.mark.parametrize("argv, message", [
    (["read", "control.nothing"], "no register control.nothing: `list` names all"),
    (["write", "control.peer[*].node", "1"], r"control.peer[*].node is 2 registers: write one"),
    (["write", "control.node", "nummer=1"],
     "node has no field 'nummer': say one of number=..."),
    (["write", "control.node", "number=5000"], "number has 12 bits, 5000 has more"),
    (["write", "control.node", "number=-1"], "number must not be negative, not '-1'"),
    (["write", "control.node", "0x100000000"],
     "a register's value has 32 bits, 0x100000000 has more"),
    (["write", "control.node", "five"],
     "a register's value must be a number such as 12 or 0x1f, not 'five'"),
    *((["counters", "--watch", text], f"--watch must be above 0 and at most 86400, not {said}")
      for text, said in (("0", "0"), ("nan", "nan"), ("inf", "inf"), ("1e30", "1e+30"))),
])
def test_mistakes(monkeypatch, capsys, argv, message):
    registers = board()
    before = dict(registers)
    assert run(monkeypatch, capsys, Port(registers), *argv) == (
        2, f"dxpu console: error: {message}\n")
    assert registers == before


def test_no_port_and_no_proxy(monkeypatch, capsys):
    assert main(["console", "/dev/no-such-port", "list"]) == 2
    assert "cannot open /dev/no-such-port: " in capsys.readouterr().err
    status, text = run(monkeypatch, capsys, Port({0: 5}), "list")
    assert (status, text) == (1, "dxpu console: not a DXPU proxy: its identity is 0x00000005, not "
                                 "0x44585055\n")
    status, text = run(monkeypatch, capsys, Port({}, bad=lambda data: b""), "list")
    assert status == 1 and "no answer after 4 tries: is the board configured" in text
    status, text = run(monkeypatch, capsys, Port({}), "list")
    assert status == 1 and "there is no register at 0x0000, or it cannot be read" in text


def test_a_port_that_goes_away(monkeypatch, capsys):
    """Its adapter is pulled while the counters are watched."""
    port = Port(board())

    def gone():
        raise termios.error(5, "Input/output error")

    monkeypatch.setattr(console.time, "sleep", lambda _: monkeypatch.setattr(
        port, "reset_input_buffer", gone))
    assert run(monkeypatch, capsys, port, "counters", "--watch", "1") == (
        1, "dxpu console: the serial port has gone: (5, 'Input/output error')\n")


def test_a_baud_rate_that_no_port_has(monkeypatch, capsys):
    def refuses(*_, **__):
        raise OverflowError("signed integer is greater than maximum")

    monkeypatch.setattr("serial.serial_for_url", refuses)
    assert main(["console", "/dev/there", "--baud", "99999999999", "list"]) == 2
    assert capsys.readouterr().err == (
        "dxpu console: error: cannot open /dev/there: signed integer is greater than maximum\n")


def test_damage_is_noticed():
    """One character in thirty is wrong or lost: what is read is right, what is said to be written
    is, and nothing else is."""
    rng = random.Random(seed())

    def bad(data):
        kept = bytearray()
        for byte in data:
            kind = rng.random()
            if kind > 0.03:
                kept.append(byte)
            elif kind > 0.015:
                kept.append(byte ^ 1 << rng.randrange(7))
        return bytes(kept)

    registers = {address: rng.getrandbits(32) for address in range(0, 64, 4)}
    line, done, unsure = RegisterLine(Port(registers, bad), tries=20), 0, 0
    for _ in range(600):
        address, value = rng.choice(list(registers)), rng.getrandbits(32)
        before = dict(registers)
        if rng.random() < 0.5:
            assert line.read(address) == registers[address]
            assert registers == before
            continue
        try:
            line.write(address, value)
            assert registers == {**before, address: value}
            done += 1
        except ConsoleError as error:
            assert "which may have been done" in str(error)
            assert registers in (before, {**before, address: value})
            unsure += 1
    assert done > 100 and unsure > 10


class Gateware:
    """A serial port with real gateware behind, that is simulated while an answer is waited for."""

    BIT = 8

    def __init__(self):
        m = Module()
        m.submodules.console = core = Console()
        m.submodules.receiver = receiver = UartReceiver(self.BIT)
        m.submodules.transmitter = transmitter = UartTransmitter(self.BIT)
        m.submodules.file = file = RegisterFile(control_block("box", rows=3, width=64, **SHAPE))
        connect_ports(m, core.bus, file.bus)
        m.d.comb += [
            core.i.eq(receiver.o), core.i_valid.eq(receiver.o_valid),
            transmitter.i.payload.eq(core.o.payload), transmitter.i.valid.eq(core.o.valid),
            core.o.ready.eq(transmitter.i.ready),
        ]
        self._bits, self._received = [], b""

        async def drive(ctx):
            while True:
                ctx.set(receiver.rx, self._bits.pop(0) if self._bits else 1)
                await ctx.tick().repeat(self.BIT)

        async def listen(ctx):
            while True:
                while ctx.get(transmitter.tx):
                    await ctx.tick()
                await ctx.tick().repeat(self.BIT + self.BIT // 2)
                byte = 0
                for n in range(8):
                    byte |= ctx.get(transmitter.tx) << n
                    await ctx.tick().repeat(self.BIT)
                assert ctx.get(transmitter.tx)
                self._received += bytes([byte])

        self._simulator = Simulator(m)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(drive, background=True)
        self._simulator.add_testbench(listen, background=True)
        self._time = 0

    def reset_input_buffer(self):
        self._received = b""

    def write(self, data):
        for byte in data:
            self._bits += [0, *(byte >> n & 1 for n in range(8)), 1]

    def read_until(self, end):
        for _ in range(100):
            self._time += 100e-6
            self._simulator.run_until(self._time)
            if end in self._received:
                break
        line, found, self._received = self._received.partition(end)
        return line + found


def test_gateware():
    """The program finds out what the proxy is, reads and writes."""
    line = RegisterLine(Gateware())
    found = map_of(line)
    assert found.name == "box_proxy" and found.blocks["control"] == MAP.blocks["control"]
    address = found.address("control.peer[1].node")
    line.write(address, 0x8000_0123)
    assert line.read(address) == 0x8000_0123
    with pytest.raises(ConsoleError, match="there is no register at 0xfffc"):
        line.read(0xFFFC)
    with pytest.raises(ConsoleError, match="or it cannot be written"):
        line.write(found.address("control.identity"), 1)


def test_wrong_words_raise_before_anything_is_read():
    register = control_block("box", rows=3, width=64, **SHAPE).find("fabric").register
    with pytest.raises(UserError, match="fabric has no field 'x'"):
        console.written(register, ["x=1"], lambda: pytest.fail("read"))
