"""``dxpu generate``: Verilog that tools accept, with the ports of docs/reference/ports.md."""

import argparse
import re
from pathlib import Path

import pytest

from dxpu.proxy import BoxProxy
from dxpu.proxy.verilog import PlainPorts
from dxpu_cli import main as cli
from dxpu_cli.commands import generate
from dxpu_sim.run.verilate import lint
from dxpu_tools import files

PAGE = Path(__file__).parents[2] / "docs/reference/ports.md"
AXI_PAGE = PAGE.with_name("axi-ports.md")
AXI = {"ethernet": "axis", "tlp": "axis", "registers": "axi-lite"}


def documented(role, *, width=64, slots=8, paths=2, options=(), page=PAGE):
    """Ports in the tables of a page: name to direction and bits."""
    signs = {
        "<port>": ["upstream"] if role == "host" else [f"slot{n}" for n in range(slots)],
        "<class>": ["p", "np", "cpl"],
        "<path>": range(paths),
    }
    bits = {"W": width, "D": (width // 32).bit_length(), "K": width // 8, "N": slots,
            "P": paths}
    result = {}
    for title, section in re.findall(r"^##+ (.*)\n((?:(?!##).*\n)*)", page.read_text(), re.M):
        option = re.search(r"only with --(\w+)", title)
        if "box proxy only" in title and role == "host" or option and option[1] not in options:
            continue
        for name, flow, size in re.findall(r"^\| `([\w<>]+)` \| (in|out) \| (\w+) \|", section,
                                           re.M):
            names = [name]
            for sign, values in signs.items():
                names = [n.replace(sign, str(v)) for n in names for v in values] \
                    if sign in name else names
            for n in names:
                assert n not in result, f"{n} is in docs/reference/{page.name} twice"
                result[n] = flow, int(bits.get(size, size))
    return result


def documented_axi(role, *, width=64, slots=8, paths=2, ethernet="gmii", ethernet_clock="own",
                   tlp="stream", registers="bus", options=()):
    """The same of both pages, for a proxy with such interfaces."""
    shape = {"width": width, "slots": slots, "paths": paths}
    result = documented(role, **shape, options=options)
    axi = documented(role, **shape, page=AXI_PAGE)
    for chosen, old, new in (
            (ethernet == "axis", r"gmii", r"[ms]_axis_eth|eth"),
            (tlp == "axis", r"(upstream|slot\d+)_(rx|tx)_", r"[ms]_axis_(upstream|slot)"),
            (registers == "axi-lite", r"bus_", r"s_axil_")):
        if chosen:
            result = {name: port for name, port in result.items() if not re.match(old, name)
                      or re.search(r"_rx_(p|np|cpl)_(header|data)$", name)}
            result |= {name: port for name, port in axi.items() if re.match(new, name)}
    if ethernet_clock == "core":
        result = {name: port for name, port in result.items() if not re.match(r"eth\d", name)}
    return result


def in_verilog(text, top):
    """Ports of module ``top``: name to direction and bits."""
    body = re.search(rf"^module {top}\(.*?^endmodule", text, re.M | re.S)[0]
    header = re.search(r"\((.*?)\);", body, re.S)[1]
    ports = {name: (flow + "put", int(high or 0) + 1) for flow, high, name in re.findall(
        r"^  (in|out)put (?:\[(\d+):0\] )?(\w+);", body, re.M)}
    assert {n.strip() for n in header.split(",")} == set(ports)
    return {n: (flow.removesuffix("put"), bits) for n, (flow, bits) in ports.items()}


def check(text, role, *, width, slots, paths, **interfaces):
    top = f"dxpu_{role}"
    assert in_verilog(text, top) == documented_axi(role, width=width, slots=slots, paths=paths,
                                                   **interfaces)
    for module in re.findall(r"^module \\?(\S+?) ?\(", text, re.M):
        assert module == top or module.startswith(f"{top}."), module


def generate_and_check(folder, role, width, slots, paths, *others, **interfaces):
    file = folder / f"{role}.v"
    options = {"--width": width, "--slots": slots, "--paths": paths}
    argv = [str(x) for option in options.items() for x in option]
    assert cli.main(["generate", role, "-o", str(file), *argv, *others]) == 0
    assert list(folder.iterdir()) == [file]
    check(file.read_text(), role, width=width, slots=slots, paths=paths, **interfaces)
    assert lint(file, top=f"dxpu_{role}") == ""


@pytest.mark.long
def test_smallest_box(tmp_path):
    generate_and_check(tmp_path, "box", 32, 1, 1)


@pytest.mark.long
@pytest.mark.parametrize("options", [("keys",), ("keys", "managed")], ids=",".join)
def test_a_box_with_keys(tmp_path, options):
    generate_and_check(tmp_path, "box", 64, 1, 1, *(f"--{option}" for option in options),
                       options=options)


@pytest.mark.long
@pytest.mark.parametrize("role, width, slots, paths, others", [
    ("host", 32, 32, 1, ()), ("host", 64, 8, 2, ("--split",)), ("host", 128, 1, 16, ()),
    ("host", 64, 8, 2, ("--arq", "selective")),
    ("host", 512, 3, 1, ()),
    ("host", 64, 4, 2, ("--placeholder", "--placeholder-prefetchable", "128G")),
    ("box", 32, 16, 2, ("--peers", "1", "--streams", "1")), ("box", 64, 8, 2, ()),
    ("box", 256, 1, 1, ()), ("box", 512, 1, 1, ()), ("box", 512, 4, 2, ("--split",))])
def test_files_of_other_shapes(tmp_path, role, width, slots, paths, others):
    generate_and_check(tmp_path, role, width, slots, paths, *others)


@pytest.mark.long
@pytest.mark.parametrize("role, width, others, interfaces", [
    ("box", 64, ("--axi",), AXI),
    ("host", 64, ("--axi",), AXI),
    ("box", 512, ("--ethernet", "axis", "--ethernet-clock", "core"),
     {"ethernet": "axis", "ethernet_clock": "core"}),
])
def test_files_with_ports_of_axi(tmp_path, role, width, others, interfaces):
    generate_and_check(tmp_path, role, width, 1, 1, "--peers", "1", "--streams", "1", *others,
                       **interfaces)


def test_lint_sees_a_port_that_is_not_there(tmp_path):
    (tmp_path / "a.v").write_text("module a(input x, output y); assign y = x; endmodule\n"
                                  "module b(input p); a part(.x(p), .z(p)); endmodule\n")
    assert "%Error" in lint(tmp_path / "a.v", top="b")
    (tmp_path / "a.v").write_text("module a(input x, output y); assign y = x; endmodule\n"
                                  "module b(input p); a part(.x(p)); endmodule\n")
    assert "PINMISSING" in lint(tmp_path / "a.v", top="b")


@pytest.mark.parametrize("role, width, slots, paths, options", [
    ("host", 32, 1, 1, ()), ("host", 64, 8, 2, ()), ("host", 128, 32, 16, ()),
    ("host", 256, 4, 2, ()), ("host", 64, 2, 1, ("keys",)), ("box", 64, 2, 1, ("keys",)),
    ("host", 64, 2, 1, ("keys", "managed")), ("box", 64, 2, 1, ("keys", "managed")),
    ("box", 32, 16, 1, ()), ("box", 64, 8, 2, ()), ("box", 512, 1, 16, ())])
def test_page_names_the_ports_of_every_shape(role, width, slots, paths, options):
    """The same without making Verilog: all but clocks and resets, which come from conversion."""
    proxy = PlainPorts(generate.make(role, width=width, slots=slots, paths=paths,
                                     **dict.fromkeys(options, True)))
    ports = {name: (member.flow.value.lower(), member.shape)
             for name, member in proxy.signature.members.items()}
    promised = {name: port for name, port in documented(role, width=width, slots=slots,
                                                        paths=paths, options=options).items()
                if not re.search(r"(^|_)(clk|rst)$", name)}
    assert ports == promised


@pytest.mark.parametrize("role, width, slots, paths, interfaces", [
    ("host", 64, 8, 2, AXI), ("box", 64, 8, 2, AXI), ("box", 512, 1, 3, AXI),
    ("host", 128, 2, 1, {"ethernet": "axis"}), ("box", 32, 2, 1, {"tlp": "axis"}),
    ("host", 32, 2, 1, {"registers": "axi-lite"}),
    ("box", 256, 2, 2, {"ethernet": "axis", "ethernet_clock": "core"})])
def test_pages_name_the_ports_of_axi(role, width, slots, paths, interfaces):
    proxy = PlainPorts(generate.make(role, width=width, slots=slots, paths=paths, **interfaces))
    ports = {name: (member.flow.value.lower(), member.shape)
             for name, member in proxy.signature.members.items()}
    promised = documented_axi(role, width=width, slots=slots, paths=paths, **interfaces)
    assert ports == {name: port for name, port in promised.items()
                     if not re.search(r"(^|_)(clk|rst)$", name)}


@pytest.mark.parametrize("argv, chosen", [
    ((), ("gmii", "own", "stream", "bus")),
    (("--axi",), ("axis", "own", "axis", "axi-lite")),
    (("--axi", "--tlp", "stream", "--ethernet-clock", "core"),
     ("axis", "core", "stream", "axi-lite")),
    (("--axi", "--ethernet", "gmii"), ("gmii", "own", "axis", "axi-lite")),
    (("--registers", "axi-lite"), ("gmii", "own", "stream", "axi-lite"))])
def test_interfaces_are_chosen_one_by_one_or_together(argv, chosen):
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    names = ("ethernet", "ethernet_clock", "tlp", "registers")
    assert generate.interfaces(parser.parse_args(["host", "-o", "x.v", *argv])) == dict(
        zip(names, chosen, strict=True))


def test_without_an_option_the_proxy_is_that_of_before():
    assert type(generate.make("box", slots=1, paths=1)) is BoxProxy


def test_containment_is_for_the_host():
    """Asked for, the switch has it and no Hot-Plug Surprise."""
    slot = generate.make("host", dpc=True).core._switch._identity.slot
    assert slot.dpc and not slot.surprise
    slot = generate.make("host").core._switch._identity.slot
    assert not slot.dpc and slot.surprise


def test_the_serial_number_of_the_switch():
    """That of the option, in the capability and in the register; else one that says nobody's."""
    for options, serial in (({}, 0x0044_58FF_FE00_0001),
                            ({"serial": 0x0A1B_2CFF_1234_5678}, 0x0A1B_2CFF_1234_5678)):
        host = generate.make("host", width=64, slots=2, peers=1, streams=1, **options)
        assert host.core._switch._identity.serial == serial
        register, = (p.register for p in host.registers.blocks["control"][1].placed
                     if p.path == "serial")
        assert register.fields[0].reset == serial & 0xFFFF_FFFF


def test_strict_sources_are_for_the_host():
    """Off unless asked for."""
    assert generate.make("host", strict_source=True).core._switch._identity.slot.strict_source
    assert not generate.make("host").core._switch._identity.slot.strict_source


@pytest.mark.parametrize("argv, message", [
    (("host", "--width", "48"), "--width must be one of 32, 64, 128, 256, 512, not 48"),
    (("host", "--width", "32", "--axi"), "--ethernet axis needs --width 64 to 512, not 32"),
    (("box", "--width", "32", "--ethernet", "axis"),
     "--ethernet axis needs --width 64 to 512, not 32"),
    (("box", "--ethernet-clock", "core"), "--ethernet-clock needs --ethernet axis"),
    (("box", "--axi", "--ethernet", "gmii", "--ethernet-clock", "own"),
     "--ethernet-clock needs --ethernet axis"),
    (("host", "--slots", "33"), "--slots must be 1 to 32 for a host, not 33"),
    (("box", "--slots", "17"), "--slots must be 1 to 16 for a box, not 17"),
    (("box", "--slots", "0"), "--slots must be 1 to 16 for a box, not 0"),
    (("host", "--paths", "0"), "--paths must be 1 to 16, not 0"),
    (("host", "--paths", "17"), "--paths must be 1 to 16, not 17"),
    (("box", "--managed"), "--managed needs --keys: management has the cipher of the sessions"),
    (("box", "--dpc"), "--dpc is for a host: only its switch has downstream ports"),
    (("box", "--serial", "1"), "--serial is for a host: a box has no switch that shows one"),
    (("host", "--serial", "0x10000000000000000"), "--serial must be a whole number from 0 to "
     "18446744073709551615, not '0x10000000000000000'"),
    (("host", "--serial", "00-44"), "--serial must be a whole number from 0 to "
     "18446744073709551615, not '00-44'"),
    (("box", "--strict-source"),
     "--strict-source is for a host: only its switch has downstream ports"),
    (("box", "--peers", "0"), "--peers must be 1 to 64, not 0"),
    (("box", "--streams", "3"), "--streams must be 1, 2, 4, 8 or 16, not 3"),
    (("box", "--peers", "17"), "--peers times --streams must be at most 64, not 68"),
    (("box", "--arq", "none"), "--arq must be one of go-back-n, selective, not 'none'"),
    (("box", "--arq", "selective", "--split"), "--arq selective does not go with --split"),
    (("host", "--placeholder", "--placeholder-memory", "3M"),
     "--placeholder-memory must be a power of two from 1 MiB to 2 GiB, not '3M'"),
    (("host", "--placeholder", "--placeholder-memory", "512K"),
     "--placeholder-memory must be a power of two from 1 MiB to 2 GiB, not '512K'"),
    (("host", "--placeholder", "--placeholder-memory", "4G"),
     "--placeholder-memory must be a power of two from 1 MiB to 2 GiB, not '4G'"),
    (("host", "--placeholder", "--placeholder-prefetchable", "256T"),
     "--placeholder-prefetchable must be a power of two from 1 MiB to 128 TiB, not '256T'"),
    (("host", "--placeholder", "--placeholder-prefetchable", "-1"),
     "--placeholder-prefetchable must be a size such as 32M or 64G, not '-1'"),
    (("host", "--placeholder", "--placeholder-prefetchable", "big"),
     "--placeholder-prefetchable must be a size such as 32M or 64G, not 'big'"),
    (("host", "--placeholder-memory", "32M"), "--placeholder-memory needs --placeholder"),
    (("box", "--placeholder"), "--placeholder is for a host, not for a box"),
    (("box", "--name", "2nd"), "--name must be a Verilog identifier, not '2nd'"),
    (("box", "--name", "a b"), "--name must be a Verilog identifier, not 'a b'"),
    (("box", "--name", "größe"), "--name must be a Verilog identifier, not 'größe'"),
])
def test_wrong_values_get_one_line(tmp_path, capsys, argv, message):
    assert cli.main(["generate", *argv, "-o", str(tmp_path / "x.v")]) == 2
    assert capsys.readouterr().err == f"dxpu generate: error: {message}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("argv, message", [
    (("switch",), "argument role: invalid choice: 'switch' (choose from 'host', 'box')"),
    (("host", "--width", "wide"), "argument --width: invalid int value: 'wide'"),
    (("host", "--slots"), "argument --slots: expected one argument"),
    (("host", "--ethernet", "xgmii"), "argument --ethernet: invalid choice: 'xgmii' (choose from "
     "'gmii', 'axis')"),
    (("host", "--colour", "red"), "unrecognized arguments: --colour red"),
])
def test_wrong_use_gets_one_line(tmp_path, capsys, argv, message):
    with pytest.raises(SystemExit) as end:
        cli.main(["generate", "-o", str(tmp_path / "x.v"), *argv])
    assert end.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and message in line and "dxpu" in line
    assert not list(tmp_path.iterdir())


def test_output_is_needed(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["generate", "host"])
    assert end.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "the following arguments are required: -o/--output" in line


def test_wrong_places_get_one_line(tmp_path, capsys):
    assert cli.main(["generate", "box", "-o", str(tmp_path / "no" / "x.v")]) == 2
    assert capsys.readouterr().err == (
        "dxpu generate: error: --output must be a file in a folder that is there, not "
        f"{str(tmp_path / 'no' / 'x.v')!r}\n")
    assert cli.main(["generate", "box", "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "dxpu generate: error: --output must be a file in a folder that is there, not "
        f"{str(tmp_path)!r}\n")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_left_alone(tmp_path, capsys, monkeypatch):
    target = tmp_path / "x.v"
    target.write_text("old")
    monkeypatch.setattr("dxpu_tools.conversion.to_verilog", lambda component, name: "new\n")

    def full(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    assert cli.main(["generate", "box", "-o", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"dxpu generate: error: cannot write {str(target)!r}: No space left on device\n")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
