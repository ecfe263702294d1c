"""``dxpu build`` and ``dxpu flash``: mistakes are one line, a failure has a status."""

import json
import sys
import types

import pytest
from dxpu.factory import FactoryRecord
from dxpu_boards import build as builder, flash
from dxpu_boards.ecp5 import ToolFailed
from dxpu_boards.registry import BOARDS
from dxpu_boards.report import BuildReport
from dxpu_cli import main as cli
from dxpu_tools import identity
from dxpu_tools.identity import Goal, Identity, release
from tests.support.board_standin import StandIn


@pytest.fixture
def asked(monkeypatch):
    """What the top was asked for; the stand-in takes its place."""
    calls = []

    def top(board, role, shape, **options):
        calls.append((board.name, role, shape, options))
        return StandIn(board)

    module = types.ModuleType("dxpu_boards.top")
    module.top = top
    monkeypatch.setitem(sys.modules, "dxpu_boards.top", module)
    return calls


def test_list_names_every_board(capsys):
    assert cli.main(["build", "--list"]) == 0
    table, notes = capsys.readouterr().out.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()[1:]] == list(BOARDS)
    assert all(note in notes for board in BOARDS.values() for note in board.notes)


@pytest.mark.parametrize("argv, message", [
    (("versa", "--role", "host"),
     "no board 'versa'; did you mean 'versa-ecp5-5g'? `dxpu build --list` names all"),
    (("versa",), "no board 'versa'; did you mean 'versa-ecp5-5g'? `dxpu build --list` names all"),
    (("arty", "--role", "host"), "no board 'arty'; `dxpu build --list` names all"),
    ((), "name a board (`dxpu build --list` names all) and its --role, host or box"),
    (("--role", "box"), "name a board: `dxpu build --list` names all"),
    (("versa-ecp5-5g",), "versa-ecp5-5g can be a host or a box: give --role host or --role box"),
    (("butterstick",), "butterstick is for a box only: give --role box"),
    (("colorlight-5a-75b", "--role", "host"), "colorlight-5a-75b is for a box only"),
    (("versa-ecp5-5g", "--role", "box", "--slots", "17"), "--slots must be 1 to 16 for a box, "
     "not 17"),
    (("versa-ecp5-5g", "--role", "box", "--peers", "16", "--streams", "8"),
     "--peers times --streams must be at most 64, not 128"),
    (("versa-ecp5-5g", "--role", "box", "--seed", "-1"),
     "--seed must be a whole number from 0 to 1073741823, not '-1'"),
    (("versa-ecp5-5g", "--role", "box", "--tries", "0"),
     "--tries must be a whole number from 1 to 1000, not '0'"),
    (("versa-ecp5-5g", "--role", "host", "--stand-alone"),
     "--stand-alone is for a box only; a host is set up by its console"),
    (("versa-ecp5-5g", "--role", "box", "--node", "0x101"),
     "--node is for a box with --stand-alone only; write control.node by the console"),
    (("versa-ecp5-5g", "--role", "host", "--node", "0x101"),
     "--node is for a box with --stand-alone only; write control.node by the console"),
    (("butterstick", "--role", "box", "--node", "0xFFF"),
     "--node must be a whole number from 1 to 4094, not '0xFFF'"),
    (("versa-ecp5-5g", "--role", "host", "--managed"), "--managed needs --keys: management has the "
     "cipher of the sessions"),
    (("genesys-2", "--role", "host", "--keys", "--managed"), "--managed needs a factory record "
     "with the node's key, and genesys-2 reads none: set it up by its console"),
    *((("genesys-2", "--role", "host", f"--{name}", value), f"--{name} is for the open tools; "
       "genesys-2 is built with the vendor's: set it there")
      for name, value in (("goal", "area"), ("seed", "2"), ("tries", "5"))),
    (("versa-ecp5-5g", "--role", "box", "--slots", "2", "--serial", "0xffffffffffffffff"),
     "--serial must be a whole number from 0 to 18446744073709551614, not '0xffffffffffffffff'"),
    *((("versa-ecp5-5g", "--role", "box", "--slots", "4", "--gpus", gpus),
       f"--gpus must be 1 to 4, the number of slots, not {gpus}") for gpus in ("-1", "0", "5")),
    (("versa-ecp5-5g", "--role", "host", "--gpus", "1"), "--gpus is for a box only; a host has "
     "none"),
    (("versa-ecp5-5g", "--role", "box", "--slots", "4", "--gpus", "2", "--serial",
      "0xffffffffffffffff"),
     "--serial must be a whole number from 0 to 18446744073709551614, not '0xffffffffffffffff'"),
    (("colorlight-5a-75b", "--role", "box", "--width", "32"), "--width 32 is too small for "
     "colorlight-5a-75b: at 31.25 MHz its MACs need 40 bits or more to feed a frame that they "
     "have begun"),
])
def test_wrong_values_get_one_line(capsys, asked, argv, message):
    assert cli.main(["build", *argv]) == 2
    assert capsys.readouterr().err == f"dxpu build: error: {message}\n"
    assert not asked


def test_wrong_use_gets_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["build", "versa-ecp5-5g", "--role", "switch"])
    assert end.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "invalid choice: 'switch'" in line


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path, capsys, asked):
    (tmp_path / "file").write_text("")
    for out, message in ((tmp_path / "file", "--out must be a folder"),
                         (tmp_path / "file" / "x", "cannot write to --out")):
        assert cli.main(["build", "versa-ecp5-5g", "--role", "box", "--out", str(out)]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"dxpu build: error: {message}") and line.count("\n") == 1
    assert not asked


def test_the_shape_is_the_boards_but_for_what_is_given(tmp_path, capsys, asked, monkeypatch):
    def built(board, design, folder, *, role, shape, seed, tries, goal, identity, progress):
        assert tries == 3
        (folder / "report.txt").write_text("")
        return BuildReport(board.name, role, board.part, seed, goal, vars(shape), identity)

    monkeypatch.setattr(builder, "build", built)
    monkeypatch.setattr(identity, "_git", lambda root, verb, *_: {
        "ls-files": "x", "rev-parse": "c0ffee11" * 5, "status": " M hdl/dxpu/queue.py"}[verb])
    out = tmp_path / "new" / "folder"
    assert cli.main(["build", "versa-ecp5-5g", "--role", "box", "--out", str(out), "--streams",
                     "2", "--seed", "7", "--goal", "area"]) == 0
    (name, role, shape, options), = asked
    default = BOARDS["versa-ecp5-5g"].roles["box"]
    assert (name, role) == ("versa-ecp5-5g", "box")
    assert vars(shape) == vars(default) | {"streams": 2}
    # What the registers say and what the report says are the same.
    assert options == {"identity": Identity(0xC0FFEE11, True, Goal.AREA, 7)}
    said = capsys.readouterr().out
    assert "versa-ecp5-5g, box: LFE5UM5G-45F-8BG381, for area, seed 7" in said
    assert f"\nDXPU {'.'.join(map(str, release()))}, commit c0ffee11 with changes\n" in said
    assert f"{out}/versa-ecp5-5g-box.bit" in said and out.is_dir()


@pytest.mark.parametrize("argv, gpus", [((), 3), (("--gpus", "2"), 2), (("--gpus", "3"), 3)])
def test_the_report_has_the_number_of_soft_gpus(tmp_path, capsys, asked, monkeypatch, argv, gpus):
    monkeypatch.setattr(builder, "build", lambda board, design, folder, **others: BuildReport(
        board.name, others["role"], board.part, 1, "speed",
        others["shape"].numbers(others["role"])))
    assert cli.main(["build", "versa-ecp5-5g", "--role", "box", "--slots", "3", *argv, "--out",
                     str(tmp_path)]) == 0
    assert f"64 width, 3 slots, 4 peers, 1 streams, {gpus} gpus\n" in capsys.readouterr().out
    assert asked[0][2].numbers("box")["gpus"] == gpus


@pytest.mark.parametrize("argv, options", [
    (("butterstick", "--role", "box"), {}),
    (("butterstick", "--role", "box", "--no-stand-alone"), {"stand_alone": False}),
    (("butterstick", "--role", "box", "--node", "0x102"), {"node": 0x102}),
    (("versa-ecp5-5g", "--role", "box", "--stand-alone", "--node", "7"),
     {"stand_alone": True, "node": 7}),
    (("versa-ecp5-5g", "--role", "host", "--no-stand-alone"), {"stand_alone": False}),
    (("versa-ecp5-5g", "--role", "host", "--serial", "0xa1b2cff12345678"),
     {"serial": 0x0A1B_2CFF_1234_5678}),
    (("versa-ecp5-5g", "--role", "box", "--serial", "7"), {"serial": 7})])
def test_what_is_said_of_the_stand_alone_mode(tmp_path, asked, monkeypatch, argv, options):
    monkeypatch.setattr(builder, "build", lambda board, design, folder, **others: BuildReport(
        board.name, others["role"], board.part, 1, "speed", vars(others["shape"])))
    assert cli.main(["build", *argv, "--out", str(tmp_path)]) == 0
    assert {key: value for key, value in asked[0][3].items() if key != "identity"} == options


@pytest.mark.parametrize("error", [
    builder.BuildFailed("clock sync reaches 50.0 MHz and must reach 62.5 MHz"),
    ToolFailed("nextpnr failed with status 1: ERROR: it does not fit")])
def test_a_failure_is_one_line_and_status_1(tmp_path, capsys, asked, monkeypatch, error):
    def fails(*args, **options):
        raise error

    monkeypatch.setattr(builder, "build", fails)
    assert cli.main(["build", "versa-ecp5-5g", "--role", "box", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"dxpu build: versa-ecp5-5g, box: {error}\n"


def test_a_build_that_fails_leaves_the_last_good_one(tmp_path, capsys, asked, monkeypatch):
    def built(board, design, folder, *, role, shape, **others):
        (folder / "report.txt").write_text(texts[0])
        (folder / f"{board.name}-{role}.bit").write_text(texts[0])
        if texts.pop(0) == "bad":
            raise builder.BuildFailed("too slow")
        return BuildReport(board.name, role, board.part, 1, "speed", vars(shape))

    monkeypatch.setattr(builder, "build", built)
    argv = ["build", "versa-ecp5-5g", "--role", "box", "--out", str(tmp_path)]
    texts = ["good", "bad", "better"]
    for status, there in ((0, "good"), (1, "good"), (0, "better")):
        assert cli.main(argv) == status
        assert {f.name: f.read_text() for f in tmp_path.iterdir() if f.is_file()} == dict.fromkeys(
            ("report.txt", "versa-ecp5-5g-box.bit"), there)
        assert (tmp_path / "failed" / "report.txt").exists() == (status == 1)
    assert f"too slow (logs and reports: {tmp_path / 'failed'})\n" in capsys.readouterr().err


def test_a_build_by_the_command(tmp_path, capsys, asked):
    """The smallest open part, to the end."""
    assert cli.main(["build", "colorlight-5a-75b", "--role", "box", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["met"]
    assert (tmp_path / "report.txt").read_text() in said
    assert (tmp_path / "colorlight-5a-75b-box.bit").stat().st_size > 1000
    # One plain line for each stage, with its seconds.
    for stage in ("synthesis", "packing", "placement", "routing", "bitstream"):
        assert any(line.split()[:2] == [stage, "done"] and line.split()[3] == "s"
                   for line in said.splitlines())


def test_sources_for_the_vendors_tools(tmp_path, capsys, asked):
    assert cli.main(["build", "genesys-2", "--role", "host", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"vivado -mode batch -source top.tcl in {tmp_path}" in said
    assert {"top.v", "top.xdc", "top.tcl", "clocks.xdc"} == {f.name for f in tmp_path.iterdir()}
    # Goal and seed are not what the vendor's tools go by.
    made = asked[0][3]["identity"]
    assert (made.goal, made.seed) == (Goal.UNKNOWN, 0)


@pytest.mark.parametrize("argv, message", [
    (("versa", "x.bit"), "no board 'versa'; did you mean 'versa-ecp5-5g'? `dxpu build --list` "
     "names all"),
    (("versa-ecp5-5g", "no.bit"), "cannot read 'no.bit': No such file or directory"),
    (("versa-ecp5-5g", "x" * 300), f"cannot read '{'x' * 300}': File name too long"),
])
def test_flash_wrong_values_get_one_line(capsys, argv, message):
    assert cli.main(["flash", *argv]) == 2
    assert capsys.readouterr().err == f"dxpu flash: error: {message}\n"


GOOD = FactoryRecord(bytes(6), 1, bytes(32)).to_bytes()


@pytest.mark.parametrize("data, options, message", [
    (GOOD[:-1], (), "the record is damaged"),
    (GOOD[:20] + b"x" + GOOD[21:], (), "the record is damaged"),
    (GOOD + b"x", (), "there is more than a factory record in it"),
    (b"DXPF\2", (), "it is of version 2, not 1"),
    (b"\xFF\0\0bitstream", ("--factory",), "it is no factory record"),
    (b"", ("--factory",), "there is no record")])
def test_flash_takes_good_records_only(tmp_path, capsys, monkeypatch, data, options, message):
    monkeypatch.setattr(flash, "flash", None)
    file = tmp_path / "x.bin"
    file.write_bytes(data)
    assert cli.main(["flash", "versa-ecp5-5g", str(file), *options]) == 2
    assert capsys.readouterr().err == f"dxpu flash: error: {str(file)!r}: {message}\n"


def test_a_record_is_not_for_the_part(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(flash, "flash", None)
    (tmp_path / "x.bin").write_bytes(GOOD)
    assert cli.main(["flash", "versa-ecp5-5g", str(tmp_path / "x.bin"), "--volatile"]) == 2
    assert capsys.readouterr().err == (
        "dxpu flash: error: a factory record is for the flash, so not with --volatile\n")


def test_flash_without_the_program_gets_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "x.bit"
    file.write_text("")
    assert cli.main(["flash", "versa-ecp5-5g", str(file)]) == 1
    assert capsys.readouterr().err == (
        "dxpu flash: openFPGALoader is not installed; Debian has it as openfpgaloader, others: "
        "https://trabucayre.github.io/openFPGALoader\n")
    assert cli.main(["flash", "butterstick", str(file)]) == 1
    assert capsys.readouterr().err == ("dxpu flash: butterstick has no cable of its own; name "
                                       "yours, as openFPGALoader calls it\n")


def test_flash_runs_the_program(tmp_path, capsys, monkeypatch):
    """A program of that name that remembers how it was called."""
    program, heard = tmp_path / flash.LOADER, tmp_path / "heard"
    program.write_text(f'#!/bin/sh\necho "$@" > {heard}\nexit "${{STATUS:-0}}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    file = tmp_path / "x.bit"
    file.write_text("")
    for argv, wanted in ((("versa-ecp5-5g",), "--cable ft2232 --write-flash"),
                         (("ecpix-5-85f", "--volatile"), "--board ecpix5"),
                         (("butterstick", "--cable", "ft232", "--volatile"), "--cable ft232"),
                         (("logicbone", "--cable", "ft232", "--overwrite-boot-loader"),
                          "--cable ft232 --write-flash"),
                         (("genesys-2",),
                          "--board genesys2 --fpga-part xc7k325tffg900 --write-flash"),
                         (("genesys-2", "--cable", "ft2232"),
                          "--cable ft2232 --fpga-part xc7k325tffg900 --write-flash"),
                         (("alinx-ax7325b",),
                          "--cable ft232 --fpga-part xc7k325tffg900 --write-flash")):
        assert cli.main(["flash", argv[0], str(file), *argv[1:]]) == 0
        assert heard.read_text() == f"{wanted} {file}\n"
    record = tmp_path / "x.bin"
    record.write_bytes(FactoryRecord(bytes(6), 1, bytes(32)).to_bytes())
    for argv, wanted in (
            (("versa-ecp5-5g",), "--cable ft2232 --write-flash --file-type raw --offset 0x3f0000"),
            # The boot loader is not where the record is.
            (("butterstick", "--cable", "ft232", "--factory"),
             "--cable ft232 --write-flash --file-type raw --offset 0xfe0000")):
        assert cli.main(["flash", argv[0], str(record), *argv[1:]]) == 0
        assert heard.read_text() == f"{wanted} {record}\n"
    heard.unlink()
    assert cli.main(["flash", "genesys-2", str(record)]) == 1
    assert capsys.readouterr().err == (
        "dxpu flash: genesys-2 has no place for a factory record\n")
    assert cli.main(["flash", "butterstick", str(file), "--cable", "ft232"]) == 1
    assert not heard.exists()
    assert capsys.readouterr().err == (
        "dxpu flash: the flash of butterstick begins with its boot loader, which this would "
        "overwrite; give --volatile, use the boot loader (docs/reference/boards.md), or give "
        "--overwrite-boot-loader\n")
    monkeypatch.setenv("STATUS", "3")
    assert cli.main(["flash", "versa-ecp5-5g", str(file)]) == 1
    assert capsys.readouterr().err == "dxpu flash: openFPGALoader failed with status 3\n"
