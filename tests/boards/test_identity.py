"""dxpu_tools.identity: what a bitstream says of itself is what it was made from."""

import shutil
import subprocess

import pytest
from amaranth.hdl import Fragment
from amaranth.sim import Simulator
from dxpu.bringup import Takes
from dxpu.csr import RegisterFile
from dxpu.proxy.box import BoxProxy
from dxpu_boards import registers, report
from dxpu_boards.registry import BOARDS
from dxpu_boards.top import Top
from dxpu_cli.options import NO_KEYS
from dxpu_tools.identity import Goal, Identity, of_source, release
from tests.cli.test_console import Port, run

VERSA = BOARDS["versa-ecp5-5g"]
MADE = Identity(0x12345678, True, Goal.AREA, 2**31 - 1)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree with one commit; git knows nothing of the user."""
    if shutil.which("git") is None:
        pytest.skip("git: not installed")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"),
                        *((f"GIT_{who}_{what}", "x@y") for who in ("AUTHOR", "COMMITTER")
                          for what in ("NAME", "EMAIL"))):
        monkeypatch.setenv(name, value)
    for name in ("boards/dxpu_boards/board.py", "docs/page.md", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "-m", "all")
    return tmp_path


def _git(root, *words):
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True,
                          text=True).stdout.strip()


def test_the_commit_of_a_source_tree(tree):
    head = int(_git(tree, "rev-parse", "HEAD")[:8], 16)
    assert of_source("speed", 5, tree) == Identity(head, False, Goal.SPEED, 5)
    # What is not built does not count.
    (tree / "docs/page.md").write_text("other")
    assert not of_source("speed", 5, tree).dirty
    for name in ("boards/dxpu_boards/board.py", "hdl/new.py", "pyproject.toml"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("other")
        assert of_source("area", 0, tree) == Identity(head, True, Goal.AREA, 0)
        _git(tree, "stash", "--include-untracked")
        assert not of_source("area", 0, tree).dirty


def test_no_commit(tree, tmp_path_factory, monkeypatch):
    nothing = Identity(0, False, Goal.SPEED, 1)
    # A tree that git does not keep; one that lies within another; git without a commit.
    assert of_source("speed", 1, tmp_path_factory.mktemp("plain")) == nothing
    (tree / "lib/boards/dxpu_boards").mkdir(parents=True)
    (tree / "lib/boards/dxpu_boards/board.py").write_text("")
    assert of_source("speed", 1, tree / "lib") == nothing
    shutil.rmtree(tree / ".git")
    _git(tree, "init", "--quiet")
    _git(tree, "add", ".")
    assert of_source("speed", 1, tree).commit == 0
    monkeypatch.setenv("PATH", str(tree))
    assert of_source("speed", 1, tree) == nothing


def test_git_that_hangs_is_not_waited_for(tree, monkeypatch):
    (tree / "git").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tree / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tree))
    monkeypatch.setattr("dxpu_tools.identity.PATIENCE", 0.2)
    assert of_source("speed", 1, tree) == Identity(0, False, Goal.SPEED, 1)


def test_registers():
    """What the hardware answers."""
    file = RegisterFile(registers.board_block("x", paths=1, identity=MADE))
    found = {}

    async def testbench(ctx):
        for name in ("commit", "build", "seed"):
            ctx.set(file.bus.request.p.address, file.block.address(name))
            ctx.set(file.bus.request.valid, 1)
            ctx.set(file.bus.response.ready, 1)
            await ctx.tick().until(file.bus.request.ready)
            ctx.set(file.bus.request.valid, 0)
            answer, = await ctx.tick().sample(file.bus.response.p).until(file.bus.response.valid)
            found[name] = file.block.find(name).register.unpack(answer.data)

    simulator = Simulator(Fragment.get(file, None))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert found == {"commit": {"value": 0x12345678}, "build": {"dirty": 1, "goal": 2},
                     "seed": {"value": 2**31 - 1}}


def test_a_top_says_nothing_unless_told():
    """A netlist is the same at each commit, but for a build."""
    plain, told = (Top(VERSA, "host", VERSA.roles["host"], **options)._block
                   for options in ({}, {"identity": MADE}))
    assert plain == registers.board_block(VERSA.name, paths=2)
    assert told == registers.board_block(VERSA.name, paths=2, identity=MADE) != plain
    assert [plain.find(name).register.reset for name in ("commit", "build", "seed")] == [0, 0, 0]


def test_reports():
    result = report.BuildReport("b", "box", "p", 1, "area", {}, MADE)
    version = ".".join(map(str, release()))
    assert f"\nDXPU {version}, commit 12345678 with changes\n" in result.as_text()
    assert {name: result.as_json()[name] for name in ("version", "commit", "dirty")} == {
        "version": version, "commit": "12345678", "dirty": True}
    result = report.BuildReport("b", "box", "p", 1, "area", {})
    assert f"\nDXPU {version}, commit unknown\n" in result.as_text()
    assert result.as_json()["commit"] is None


#: What the console says without a record.
#: Identity of a proxy without keys.
KEYS = NO_KEYS.replace("keys: ", "keys     ")
NO_RECORD = "factory  no record\naddress  02:44:58:ff:ff:ff\n"


def _values(board, identity, seconds):
    """Registers of a box on a board, byte address to value."""
    map = registers.map_of(BoxProxy(64, slots=1, paths=2, peers=2, streams=1), board, width=64)
    values = {base + p.address: p.register.reset for base, block in map.blocks.values()
              for p in block.placed}
    base = registers.BASES["board"]
    block = registers.board_block(board.name, paths=2, identity=identity)
    values |= {base + p.address: p.register.reset for p in block.placed}
    values[map.address("board.gpus")] = 1
    values[map.address("board.release")] = 0x010203
    values[map.address("board.uptime")] = seconds
    values[map.address("board.factory")] = 2
    values[map.address("board.mac_high")] = 0x0244
    values[map.address("board.mac_low")] = 0x58FFFFFF
    return values


@pytest.mark.parametrize("identity, seconds, wanted", [
    (MADE, 86400 + 3723, ["12345678 with changes", "for area, seed 2147483647", "1 day, 01:02:03"]),
    (Identity(1, False, Goal.SPEED, 0), 59, ["00000001", "for speed, seed 0", "00:00:59"]),
    (Identity(), 10 * 86400, ["unknown", "unknown", "10 days, 00:00:00"])])
def test_the_console_says_it(monkeypatch, capsys, identity, seconds, wanted):
    status, text = run(monkeypatch, capsys, Port(_values(VERSA, identity, seconds)), "identity")
    commit, options, uptime = wanted
    assert (status, text) == (0, (
        "board    versa-ecp5-5g (Lattice ECP5-5G Versa)\nproxy    box, 64 bits\n"
        "shape    1 slot, 1 soft GPU, 2 paths, 2 peers, 1 stream\n"
        f"{KEYS}\nversion  1.2.3\n"
        f"commit   {commit}\noptions  {options}\nuptime   {uptime}\n{NO_RECORD}"))


@pytest.mark.parametrize("state, key, serial, wanted", [
    (1, 1, 42, "address  02:44:58:ff:ff:ff\nserial   42\nkey      fingerprint 00c0ffee\n"),
    (1, 0, 0, "address  02:44:58:ff:ff:ff\nserial   none\nkey      none\n"),
    (0, 0, 0, NO_RECORD.replace("no record", "being read")),
    (3, 0, 0, NO_RECORD.replace("no record", "record damaged")),
    (4, 0, 0, NO_RECORD.replace("no record", "record of another version")),
    (7, 0, 0, NO_RECORD.replace("no record", "unknown"))])
def test_the_console_says_what_the_record_says(monkeypatch, capsys, state, key, serial, wanted):
    values = _values(VERSA, Identity(), 0)
    block = registers.board_block(VERSA.name, paths=2)
    for name, value in (("factory", state | key << 4), ("serial", serial),
                        ("fingerprint", 0xC0FFEE)):
        values[registers.BASES["board"] + block.address(name)] = value
    status, text = run(monkeypatch, capsys, Port(values), "identity")
    assert status == 0 and text.endswith(f"uptime   00:00:00\n{wanted}")


@pytest.mark.parametrize("fields, wanted", [
    ({"enable": 1}, "alone    takes anyone: the first host that it hears, as it has no key\n"),
    ({"enable": 1, "takes": Takes.KEY.value},
     "alone    takes the first host that proves the key of its factory record\n"),
    ({"enable": 1, "takes": Takes.NOBODY.value},
     "alone    takes nobody: its factory record is being read, or is damaged\n"),
    ({"enable": 0}, "")])
def test_the_console_says_whom_a_stand_alone_box_takes(monkeypatch, capsys, fields, wanted):
    """In a line; a build without keys has nothing to say but that it takes anyone."""
    values = _values(VERSA, Identity(), 0)
    extra = (registers.stand_alone(),)
    block = registers.board_block(VERSA.name, paths=2, extra=extra)
    values[registers.BASES["board"] + block.address("standalone")] = block.find(
        "standalone").register.pack(**fields)
    status, text = run(monkeypatch, capsys, Port(values), "identity")
    assert status == 0 and f"{KEYS}\n{wanted}version  " in text


def test_a_proxy_on_no_board_that_is_known(monkeypatch, capsys):
    values = _values(VERSA, Identity(), 0)
    del values[registers.BASES["board"]]
    assert run(monkeypatch, capsys, Port(values), "identity") == (
        0, "board    unknown\nproxy    box, 64 bits\nshape    1 slot, 2 paths, 2 peers, 1 stream\n"
        f"{KEYS}\n")
