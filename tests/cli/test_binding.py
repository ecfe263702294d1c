"""``dxpu console PORT setup``, ``bind``, ``unbind``, ``bindings``, against simulated proxies and
tables."""

import itertools

import pytest
from amaranth import Module
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu_boards import operate
from dxpu_cli.console.command import RegisterLine, map_of
from dxpu_cli.console.proxy_setup import wait_units
from dxpu_cli.main import main
from dxpu_cli.options import NO_KEYS, key_in
from dxpu_tools.errors import UserError
from tests.support.proxy_port import only_table, with_board

SHAPE = {"paths": 2, "peers": 2, "streams": 2}


@pytest.fixture
def say(monkeypatch, capsys):
    """Runs ``dxpu console`` at a port; returns its status and what it said."""
    operations = itertools.count(0xABCD_0000)
    monkeypatch.setattr(operate.secrets, "randbelow", lambda most: next(operations))
    monkeypatch.setattr("time.time", lambda: 0x1_2344)

    def run(port, words):
        monkeypatch.setattr("serial.serial_for_url", lambda *_, **__: port)
        status = main(["console", "/dev/there", *words.split()])
        said = capsys.readouterr()
        return status, said.out + said.err
    return run


def test_a_box_is_set_up_by_one_command(say):
    port = with_board(Module(), BoxProxy(64, slots=2, **SHAPE), "ecpix-5-45f", paths=2, gpus=2)
    status, text = say(port, "setup --node 0x101 --host 2 --stream 1 --path 1")
    assert (status, text.splitlines()) == (0, [
        "control.node number=0x101",
        "control.peer[0].node number=0x2 valid=0x1",
        "control.retry wait=0x4c4c",  # 20 ms of 62.5 MHz by 64
        "control.hello wait=0x4c4c",
        "control.boot counter=0x2346",
        "control.session[1].mode opener=0x2",
        "control.present slots=0x3",
        "row 0 is bound to node 0x002, slot 1, stream 1, generation 1",
        "row 1 is bound to node 0x002, slot 2, stream 1, generation 1",
        "box 0x101 is ready for host 0x002", NO_KEYS,
        "if that is a PC: sudo dxpu slots --iface NAME --box 0x101 --slots 1,2 --node 2 --stream 1 "
        "--path 1"])
    status, text = say(port, "bindings")
    assert (status, text.splitlines()) == (0, [
        "row  used   node  slot  stream  paths  generation   operation",
        "  0   yes  0x002     1       1      1           1  0xabcd0001",
        "  1   yes  0x002     2       1      1           1  0xabcd0002",
        "",
        "session   peer  stream       mode  phase",
        "      0  0x002       0  registers    off",
        "      1  0x002       1    answers  quiet"])
    # Once more changes nothing, and other paths change what they have to.
    status, text = say(port, "setup --node 0x101 --host 2 --stream 1 --path 1")
    assert status == 0 and text.splitlines()[1:2] == [NO_KEYS]
    status, text = say(port, "setup --node 0x101 --host 2 --stream 1 --path 0 1 --slots 2")
    assert (status, text.splitlines()[:-1]) == (0, [
        "row 1 is bound to node 0x002, slot 2, stream 1, generation 1",
        "box 0x101 is ready for host 0x002", NO_KEYS])
    line = RegisterLine(port)
    found = map_of(line)
    assert line.read(found.address("table.row[1].binding")) == 0x0001_0003
    assert line.read(found.address("counters.table_committed")) == 3


def test_empty_slots_are_not_bound(say):
    """A box with fewer soft GPUs than slots; nothing is written for an empty slot."""
    for gpus, slots, there in (
            (1, "1", "a GPU in slot 1 only"), (2, "1,2", "GPUs in slots 1 to 2")):
        port = with_board(Module(), BoxProxy(64, slots=3, **SHAPE), "ecpix-5-45f", paths=2,
                          gpus=gpus)
        assert say(port, "setup --node 0x101 --host 1 --slots 1,3") == (
            2, f"dxpu console: error: --slots: slot 3 is empty; this box has {there}\n")
        status, text = say(port, "setup --node 0x101 --host 1")
        assert status == 0 and text.endswith(f" --slots {slots}\n")
        assert f"control.present slots={(1 << gpus) - 1:#x}\n" in text
        status, text = say(port, "bindings")
        assert [line.split()[1] for line in text.splitlines()[1:4]] == (
            gpus * ["yes"] + (3 - gpus) * ["no"])


def test_a_host_is_set_up_for_two_boxes(say):
    port = with_board(Module(), HostProxy(64, ports=3, **SHAPE), "versa-ecp5-5g", paths=2)
    status, text = say(port, "setup --node 1 --box 0x101 --slots 1,2")
    assert (status, text.splitlines()) == (0, [
        "control.node number=0x1",
        "control.peer[0].node number=0x101 valid=0x1",
        "control.boot counter=0x2346",
        "control.session[0].mode opener=0x1",
        "row 0 is bound to node 0x101, slot 1, stream 0, generation 1",
        "row 1 is bound to node 0x101, slot 2, stream 0, generation 1",
        "host 0x001 is ready for box 0x101", NO_KEYS])
    status, text = say(port, "setup --node 1 --box 0x102 --slots 2 --path 1")
    assert (status, text.splitlines()) == (0, [
        "control.peer[1].node number=0x102 valid=0x1",
        "control.session[2].mode opener=0x1",
        "row 2 is bound to node 0x102, slot 2, stream 0, generation 1",
        "host 0x001 is ready for box 0x102", NO_KEYS])
    status, text = say(port, "bindings")
    assert (status, text.splitlines()[1:4]) == (0, [
        "  0   yes  0x101     1       0      0           1  0xabcd0001",
        "  1   yes  0x101     2       0      0           1  0xabcd0002",
        "  2   yes  0x102     2       0      1           1  0xabcd0003"])
    assert say(port, "setup --node 1 --box 0x103") == (
        1, "dxpu console: all 2 peers are taken: write 'control.peer[n].node' valid=0 frees one\n")
    assert say(port, "setup --node 1 --box 0x102 --slots 3") == (
        1, "dxpu console: no row is free for slot 3: `bindings` shows what is bound, `unbind ROW` "
           "frees one\n")


def table(role="host"):
    """A port and its table, with three rows."""
    return only_table(Module(), role, rows=3, **SHAPE)


def test_bind_and_unbind(say):
    port, _ = table()
    assert say(port, "bind 1 --node 0x101 --slot 4 --stream 1 --path 1 0") == (
        0, "row 1 is bound to node 0x101, slot 4, stream 1, generation 1\n")
    # Another set of paths is the same binding.
    assert say(port, "bind 1 --node 0x101 --slot 4 --stream 1 --path 1") == (
        0, "row 1 is bound to node 0x101, slot 4, stream 1, generation 1\n")
    assert say(port, "unbind 1") == (0, "row 1 is free\n")
    assert say(port, "bind 1 --node 0x102 --slot 1") == (
        0, "row 1 is bound to node 0x102, slot 1, stream 0, generation 2\n")
    assert say(port, "unbind 1") == (0, "row 1 is free\n")
    assert say(port, "bind 1 --node 0x102 --slot 1 --generation 0x7000") == (
        0, "row 1 is bound to node 0x102, slot 1, stream 0, generation 28672\n")
    port, _ = table("box")
    assert say(port, "bind 2 --node 1") == (
        0, "row 2 is bound to node 0x001, slot 3, stream 0, generation 1\n")


def test_a_generation_wraps(say):
    port, _ = table("box")
    assert say(port, "bind 0 --node 1 --generation 0xffff")[0] == 0
    assert say(port, "unbind 0")[0] == 0
    assert say(port, "bind 0 --node 1") == (
        0, "row 0 is bound to node 0x001, slot 1, stream 0, generation 0\n")


def test_what_the_table_refuses(say):
    port, _ = table()
    assert say(port, "bind 1 --node 0x101 --slot 4 --generation 7")[0] == 0
    target = ("row 0: BAD_TARGET: --node must be 0x001 to 0xffe, --slot from 1, --stream 0 to 1, "
              "--path 0 to 1")
    for words, message in (
            ("bind 3 --node 0x101 --slot 1", "row 3: BAD_ROW: rows are 0 to 2"),
            ("unbind 63", "row 63: BAD_ROW: rows are 0 to 2"),
            ("bind 0 --node 0 --slot 1", target),
            ("bind 0 --node 0xfff --slot 1", target),
            ("bind 0 --node 1 --slot 0", target),
            ("bind 0 --node 1 --slot 1 --stream 2", target),
            ("bind 0 --node 1 --slot 1 --path 2", target),
            ("bind 1 --node 0x102 --slot 1",
             "row 1: IN_USE: it is bound to node 0x101, slot 4, stream 0; first: unbind 1"),
            ("unbind 1 --generation 6", "row 1: STALE: the row's generation is 7, and 6 is not "
             "newer; leave --generation out")):
        assert say(port, words) == (1, f"dxpu console: {message}\n")


def test_a_table_that_another_manager_has(say):
    port, _ = table()
    assert say(port, "write table.fence_epoch 5")[0] == 0
    assert say(port, "bind 0 --node 1 --slot 1") == (
        1, "dxpu console: row 0: FENCED: the table takes no command of an epoch below 5, which "
           "somebody else set; to take over: write table.epoch 5\n")
    assert say(port, "write table.epoch 5")[0] == 0
    assert say(port, "bind 0 --node 1 --slot 1")[0] == 0


def test_a_row_whose_last_binding_is_ending(say, monkeypatch):
    """The command is given again until the row is free, or for as long as the patience lasts."""
    port, rows = table("box")
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds
        if now > 2:
            port.inputs = [(rows.draining, over)]

    monkeypatch.setattr(operate.time, "monotonic", lambda: now)
    monkeypatch.setattr(operate.time, "sleep", sleep)
    port.inputs, over = [(rows.draining, 0b011)], 0b001
    assert say(port, "bind 0 --node 1") == (
        1, "dxpu console: row 0: DRAINING: its last binding is still ending; give the command "
           "again\n")
    assert operate.PATIENCE < now < operate.PATIENCE + 1
    now, port.inputs, over = 0.0, [(rows.draining, 0b011)], 0b010
    assert say(port, "bind 0 --node 1") == (
        0, "row 0 is bound to node 0x001, slot 1, stream 0, generation 1\n")
    assert 2 < now < operate.PATIENCE


def lose(port, path, which):
    """From now on the answer to that access of a register that is written is lost."""
    address, left = f"W {map_of(RegisterLine(port)).address(path):04x} ", [which]

    def loses(line):
        left[0] -= line.startswith(address)
        return line.startswith(address) and not left[0]

    port.loses = loses


def test_a_line_that_breaks_says_what_was_done(say):
    port, _ = table()
    lose(port, "table.target", 1)
    status, text = say(port, "bind 0 --node 1 --slot 1")
    assert status == 1 and text.endswith("which may have been done: read it; row 0 is as it was\n")
    lose(port, "table.commit", 1)
    status, text = say(port, "bind 0 --node 1 --slot 1")
    assert status == 1 and text.endswith("; `bindings` shows whether row 0 has changed\n")
    assert "row 0 is bound" not in text


def test_a_setup_that_breaks_says_what_was_done(say):
    port, _ = table("box")
    lose(port, "control.hello", 1)
    words = "setup --node 0x101 --host 1 --clock 125 --wait 1.5"
    status, text = say(port, words)
    assert status == 1 and text.splitlines()[-1].endswith(
        "which may have been done: read it (done before: control.node number=0x101; "
        "control.peer[0].node number=0x1 valid=0x1; control.retry wait=0xb72). Mend that, and give "
        "the command again")
    port.loses = lambda line: False


def test_nothing_is_written_if_a_row_is_in_use(say):
    port, _ = table("box")
    assert say(port, "bind 2 --node 7")[0] == 0
    before = say(port, "read control.node control.peer[*].node control.retry table.row[*].state")
    status, text = say(port, "setup --node 0x101 --host 1 --clock 62.5")
    assert (status, text) == (
        1, "dxpu console: row 2 is bound to node 0x007, slot 3, stream 0; first: unbind 2, or "
           "leave it out by --slots\n")
    assert say(port, "read control.node control.peer[*].node control.retry table.row[*].state") == (
        before)


@pytest.mark.parametrize("role, mistakes", [("box", [
    ("setup --node 0x101 --box 1", "this is a box: say --host NODE instead of --box"),
    ("setup --node 0xfff --host 1", "--node must be a whole number from 1 to 4094, not '0xfff'"),
    ("setup --node 1 --host 1", "--node and --host must be two nodes, not both 0x001"),
    ("setup --node 2 --host 1 --stream 2", "--stream must be a whole number from 0 to 1, not '2'"),
    ("setup --node 2 --host 1 --path 0 2", "--path must be from 0 to 1"),
    ("setup --node 2 --host 1", "the board is none of ours: give its core clock by --clock MHZ"),
    ("setup --node 2 --host 1 --clock 125 --slots 4",
     "--slots must be a whole number from 1 to 3, not '4'"),
    ("setup --node 2 --host 1 --clock 125 --slots 1,1",
     "--slots must not name a slot twice, as '1,1' does"),
    *((f"setup --node 2 --host 1 --clock 125 --wait {wait}",
       f"--wait must be above 0 and at most 33.55 at 125 MHz, not {wait}")
      for wait in ("nan", "inf", "-1")),
    ("setup --node 2 --host 1 --clock 125 --wait 34",
     "--wait must be above 0 and at most 33.55 at 125 MHz, not 34"),
    ("setup --node 2 --host 1 --clock fast", "--clock must be a number, not 'fast'"),
    ("bind 1 --node 1 --slot 1", "row 1 of a box is slot 2, not 1"),
]), ("host", [
    ("setup --node 1 --host 1", "this is a host: say --box NODE instead of --host"),
    ("bind 1 --node 1", "--slot is missing: which slot of the box?"),
    ("bind one --node 1 --slot 1", "ROW must be a whole number from 0 to 63, not 'one'"),
])])
def test_mistakes(say, role, mistakes):
    port, _ = table(role)
    before = say(port, "read control.* table.*")
    for words, message in mistakes:
        assert say(port, words) == (2, f"dxpu console: error: {message}\n")
    assert say(port, "read control.* table.*") == before


def test_waits_are_those_of_the_clock():
    assert [wait_units(20, mhz) for mhz in (31.25, 62.5, 125)] == [9766, 19532, 39063]
    assert wait_units(0.256, 125) == 500  # exact, though not in binary
    for ms in (0, -1, 33.6):
        with pytest.raises(UserError, match="at most 33.55 at 125 MHz"):
            wait_units(ms, 125)


# Keys.

@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("00112233445566778899aabbccddeeff\n")
    path.chmod(0o600)
    return path


def test_a_proxy_with_keys_gets_one_or_is_told_that_it_needs_none(say, key_file):
    shape = {**SHAPE, "paths": 1, "streams": 1}
    port = with_board(Module(), BoxProxy(32, slots=1, keys=True, **shape), "ecpix-5-45f", paths=1,
                      gpus=1)
    assert say(port, "setup --node 0x101 --host 2") == (2, (
        "dxpu console: error: this proxy opens sessions under a key: give it by --key FILE, or say "
        "--clear for sessions that whoever reaches the fabric can take over\n"))
    status, text = say(port, f"setup --node 0x101 --host 2 --key {key_file}")
    lines = text.splitlines()
    assert status == 0 and lines[:3] == [
        "control.node number=0x101", "control.peer[0].node number=0x2 valid=0x1 clear=0x0",
        "control.peer[0].key (written, and in force)"]
    assert lines[-2:] == [
        "box 0x101 is ready for host 0x002",
        "if that is a PC: sudo dxpu slots --iface NAME --box 0x101 --slots 1 --node 2 --key FILE"]
    assert "0011" not in text
    line = RegisterLine(port)
    found = map_of(line)
    assert line.read(found.address("control.peer[0].key")) == 1 << 31
    for n in range(4):
        assert line.read(found.address(f"control.key[{n}].word")) == 0
    status, text = say(port, "identity")
    assert status == 0 and "keys     sessions need keys; no random words yet\n" in text
    # The other way round: its sessions are off when the peer becomes another.
    status, text = say(port, "setup --node 0x101 --host 2 --clear")
    lines = text.splitlines()
    assert status == 0 and lines[:3] == [
        "control.session[0].mode opener=0x0", "control.peer[0].node valid=0x0",
        "control.peer[0].node number=0x2 valid=0x1 clear=0x1"]
    assert NO_KEYS in lines
    status, text = say(port, "identity")
    assert "keys     some peer's sessions are opened in clear, and whoever reaches" in text


def test_a_proxy_without_keys_takes_none(say, key_file):
    port = with_board(Module(), BoxProxy(64, slots=1, **SHAPE), "ecpix-5-45f", paths=2, gpus=1)
    assert say(port, f"setup --node 0x101 --host 2 --key {key_file}") == (
        2, "dxpu console: error: --key: this proxy was built without keys; build it with --keys\n")


@pytest.mark.parametrize("text, mode, message", [
    (None, 0o600, "cannot read {name!r}: No such file or directory"),
    ("0" * 32, 0o640, "others can read {name!r}; first: chmod 600 {name}"),
    ("0" * 31, 0o600, "{name!r} must have 32 hexadecimal digits, as `openssl rand -hex 16` makes "
                      "them"),
    ("x" * 32, 0o600, "{name!r} must have 32 hexadecimal digits, as `openssl rand -hex 16` makes "
                      "them"),
    ("é", 0o600, "{name!r} must have 32 hexadecimal digits, as `openssl rand -hex 16` makes them"),
    ("0" * 64, 0o600, "{name!r} must have 32 hexadecimal digits, as `openssl rand -hex 16` makes "
                      "them")])
def test_a_wrong_key_file_is_named(tmp_path, text, mode, message):
    path = tmp_path / "key"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(UserError) as raised:
        key_in("--key", str(path))
    assert str(raised.value) == f"--key: {message.format(name=str(path))}"
