"""Options, report and table of ``dxpu demo``."""

import pytest

from dxpu_cli import main as cli
from dxpu_cli.commands import demo


def parse(*argv):
    parser = cli._Parser(prog="dxpu demo")
    demo.add_arguments(parser)
    return demo.options(parser.parse_args(argv))


def test_defaults():
    chosen = parse()
    assert chosen.boxes == (2, 1) and chosen.width == 64 and chosen.size == 65536
    assert chosen.wave == "on" and chosen.wave_cycles == 50_000
    assert str(chosen.out) == "build/demo" and chosen.pool == "on"


@pytest.mark.parametrize("boxes, gpus, expected", [
    (1, 1, (1,)), (1, 8, (8,)), (2, 2, (1, 1)), (3, 8, (3, 3, 2)), (4, 5, (2, 1, 1, 1))])
def test_gpus_are_spread(boxes, gpus, expected):
    assert parse("--boxes", str(boxes), "--gpus", str(gpus)).boxes == expected


@pytest.mark.parametrize("text, size", [("64", 64), ("4096", 4096), ("64K", 65536), ("1m", 1 << 20),
                                        ("2KiB", 2048), ("1 MB", 1 << 20), ("77", 77)])
def test_sizes(text, size):
    assert parse("--size", text).size == size


@pytest.mark.parametrize("argv, message", [
    (("--boxes", "0"), "--boxes must be a whole number from 1 to 4, not '0'"),
    (("--boxes", "two"), "--boxes must be a whole number from 1 to 4, not 'two'"),
    (("--gpus", "9"), "--gpus must be a whole number from 1 to 8, not '9'"),
    (("--boxes", "3", "--gpus", "2"), "--gpus must be at least one per box: 3 boxes, but 2 GPUs"),
    (("--boxes", "2", "--gpus", "1"), "--gpus must be at least one per box: 2 boxes, but 1 GPU"),
    (("--width", "48"), "--width must be one of 32, 64, 128, 256, 512, not '48'"),
    (("--width", ""), "--width must be one of 32, 64, 128, 256, 512, not ''"),
    (("--seed", "-1"), "--seed must be a whole number from 0 to 4294967295, not '-1'"),
    (("--size", "lots"), "--size must be a number of bytes such as 4096 or 64K, not 'lots'"),
    (("--size", "63"), "--size must be from 64 bytes to 16M, not '63'"),
    (("--size", "1000M"), "--size must be from 64 bytes to 16M, not '1000M'"),
    (("--size", "1.5K"), "--size must be a number of bytes such as 4096 or 64K, not '1.5K'"),
    (("--wave-cycles", "10"), "--wave-cycles must be a whole number from 1000 to 10000000, "
                              "not '10'"),
    (("--reads", "0"), "--reads must be a whole number from 1 to 10000, not '0'"),
    (("--out", "pyproject.toml"), "--out must be a folder, but 'pyproject.toml' is a file"),
])
def test_wrong_values(argv, message, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    with pytest.raises(cli.UserError) as error:
        parse(*argv)
    assert str(error.value) == message


@pytest.mark.parametrize("argv", [("--wave", "maybe"), ("--pool", "lan"), ("--colour", "red"),
                                  ("--boxes",)])
def test_wrong_use_is_one_line(argv, capsys):
    with pytest.raises(SystemExit) as end:
        parse(*argv)
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and message.startswith("dxpu demo: error: ")


STAGES = [
    {"lane": "root complex", "name": "request", "start_ns": 0, "end_ns": 100, "kind": "PCIe"},
    {"lane": "host proxy", "name": "conversion 1", "start_ns": 100, "end_ns": 340,
     "kind": "conversion"},
    {"lane": "host proxy", "name": "send", "start_ns": 340, "end_ns": 420, "kind": "MAC"},
    {"lane": "Ethernet", "name": "switch", "start_ns": 420, "end_ns": 2000, "kind": "Ethernet"},
    {"lane": "GPU 0", "name": "read", "start_ns": 2000, "end_ns": 2040, "kind": "GPU"},
]


def test_split_covers_the_round_trip():
    parts = demo.split(STAGES)
    assert parts == {"PCIe": {"ns": 140, "cycles": 17.5}, "conversion": {"ns": 240, "cycles": 30},
                     "wire": {"ns": 1660, "cycles": 207.5}}
    assert sum(p["ns"] for p in parts.values()) == 2040


def test_table():
    report = {
        "tree": "-[0000:00]-", "stages": STAGES, "split": demo.split(STAGES),
        "round_trip_ns": 2040, "h2d_MBps": 71.234, "d2h_MBps": 90.0,
        "round_trip_samples_ns": {"reads": 5, "min": 2000, "mean": 2040, "max": 2050},
        "options": {"size": 65536}, "checks": {"tree": True, "copy_to_gpu": False},
    }
    lines = demo.table(report).splitlines()
    cells = [line.split() for line in lines]
    assert ["host", "proxy:", "conversion", "1", "30", "240", "11.8%"] in cells
    assert any(c[:6] == ["conversion,", "four", "traversals", "30", "240", "11.8%"] for c in cells)
    assert any(c[:4] == ["host", "to", "GPU", "71.2"] for c in cells)
    assert ["tree", "ok"] in cells and ["copy", "to", "gpu", "FAILED"] in cells
    assert max(map(len, lines)) <= 120


def test_table_of_a_run_that_failed_early():
    text = demo.table({"checks": {"tree": False}, "options": {"size": 1}})
    assert "tree" in text and "FAILED" in text


def test_the_wave_opens_on_the_read_or_on_the_end():
    read = [{"start_ns": 70, "end_ns": 80}, {"start_ns": 80, "end_ns": 95}]
    assert demo.wave_span({"stages": read, "wave_from_ns": 0, "wave_to_ns": 9_000}) == (70, 95)
    # It failed before: the last 10 us, as far as the wave has them.
    assert demo.wave_span({"wave_from_ns": 5_000, "wave_to_ns": 60_000}) == (50_000, 60_000)
    assert demo.wave_span({"wave_from_ns": 55_000, "wave_to_ns": 60_000}) == (55_000, 60_000)


@pytest.mark.parametrize("argv, mib", [
    (("--wave", "off"), 32), ((), 60), (("--wave-cycles", "1000"), 32), (("--wave", "all"), 386)])
def test_room_is_that_of_the_wave(argv, mib):
    assert demo._room(parse(*argv)) >> 20 == mib
