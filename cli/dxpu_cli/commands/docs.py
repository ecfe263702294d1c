"""``dxpu docs``: pages generated from descriptions: registers, configuration spaces, ports."""

from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "pages", "run"]

#: Shape of the proxies on the pages: the defaults of ``dxpu generate``.
SHAPE = {"width": 64, "slots": 8, "paths": 2, "peers": 16, "streams": 4}
#: Board whose registers are shown besides the proxies' registers: the board that has all of them.
BOARD = "versa-ecp5-5g"
#: Interfaces of the proxies of `dxpu generate --axi`.
AXI = {"ethernet": "axis", "tlp": "axis", "registers": "axi-lite"}


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--out", default="build/docs", metavar="FOLDER",
                        help="folder for the pages; made if it is not there")


def run(arguments) -> int:
    """Write all pages; other files in the folder stay unchanged."""
    progress = Progress()
    with OutputFolder("--out", arguments.out) as out:
        progress.step("Making the pages")
        made = progress.run(pages)
        progress.step("Writing the pages")
        try:
            for name, text in made.items():
                write_text(out.work / name, text)
            out.good(made)
        except OSError as error:
            progress.done(failed=True)
            raise UserError(f"cannot write to {str(out.path)!r}: {error.strerror}") from None
        progress.update(f"{len(made)} pages")
        progress.done()
    print(f"begin with {out.path / 'index.md'}")
    return 0


def pages() -> dict[str, str]:
    """Text of each page by its file name."""
    from dxpu.csr import markdown
    from dxpu.endpoint.config_map import gpu_map
    from dxpu.switch.config.placeholder_map import placeholder_map
    from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, render
    from dxpu.switch.config.identity import Identity, SlotOptions
    from dxpu.switch.config.fields import render_map

    from .generate import make
    proxies = {role: make(role, **SHAPE) for role in ("host", "box")}
    with_keys = {role: make(role, **SHAPE, keys=True) for role in proxies}
    managed = {role: make(role, **SHAPE, keys=True, managed=True) for role in proxies}
    with_axi = {role: make(role, **SHAPE, **AXI) for role in proxies}
    titles = {
        "host_registers.md": "Registers of the host proxy",
        "box_registers.md": "Registers of the box proxy",
        "host_registers_keys.md": "The same of a host proxy with keys (`--keys`)",
        "box_registers_keys.md": "The same of a box proxy with keys (`--keys`)",
        "host_registers_managed.md": "The same of a host proxy with management (`--managed`)",
        "box_registers_managed.md": "The same of a box proxy with management (`--managed`)",
        "host_board_registers.md": "Registers of a board with a host proxy",
        "box_board_registers.md": "Registers of a board with a box proxy",
        "upstream_port.md": "Configuration space of the virtual switch's upstream port",
        "downstream_port.md": "Configuration space of the virtual switch's downstream ports",
        "downstream_port_dpc.md": "The same with Downstream Port Containment (`--dpc`)",
        "placeholder.md": "Configuration space of the placeholder in an empty slot",
        "soft_gpu.md": "Configuration space of the soft GPU",
        "ports.md": "Ports of the generated Verilog",
    }
    made = {
        **{f"{role}_registers.md": markdown(proxy.registers,
                                            title=titles[f"{role}_registers.md"])
           for role, proxy in proxies.items()},
        **{f"{role}_registers_keys.md": markdown(
            proxy.registers, title=f"Registers of the {role} proxy with keys")
           for role, proxy in with_keys.items()},
        **{f"{role}_registers_managed.md": markdown(
            proxy.registers, title=f"Registers of the {role} proxy with management")
           for role, proxy in managed.items()},
        **{f"{role}_board_registers.md": markdown(beside(proxy),
                                                  title=titles[f"{role}_board_registers.md"])
           for role, proxy in proxies.items()},
        "upstream_port.md": render(UPSTREAM),
        "downstream_port.md": render(DOWNSTREAM),
        "downstream_port_dpc.md": render(DOWNSTREAM, Identity(
            slot=SlotOptions(surprise=False, dpc=True))),
        "placeholder.md": render_map(placeholder_map(), "placeholder", "switch/placeholder_map.py"),
        "soft_gpu.md": render_map(gpu_map(), "soft GPU", "endpoint/config_map.py"),
        "ports.md": _ports(titles["ports.md"], proxies, with_axi),
    }
    shape = f"{SHAPE['width']} bits, {SHAPE['slots']} ports or slots, {SHAPE['paths']} paths, " \
            f"{SHAPE['peers']} peers, {SHAPE['streams']} streams"
    index = ["# Registers, configuration spaces, ports", "",
             f"Made by `dxpu docs` for proxies of {shape}. The addresses of registers are the same "
             "at every shape, but those of the counters.", "",
             *(f"- [{titles[name]}]({name})" for name in made)]
    return {"index.md": "\n".join(index) + "\n", **made}


def beside(proxy):
    """Registers of a board besides its proxy's registers (:class:`dxpu.csr.AddressMap`)."""
    from dxpu.csr import AddressMap
    from dxpu_boards.registers import map_of
    from dxpu_boards.registry import BOARDS
    board = BOARDS[BOARD]
    blocks = map_of(proxy, board, width=SHAPE["width"]).blocks
    return AddressMap(
        "board", {name: block for name, block in blocks.items()
                  if name not in proxy.registers.blocks},
        f"As on a {board.title}, of no bitstream in particular. Another board has rows `path` and "
        "events for its own paths; a host without an edge connector has other words in `tlp`, and "
        "no `pcie`.")


def _ports(title, proxies, with_axi):
    lines = [f"# {title}", "", "What the ports mean and how they behave in time is in "
             "`docs/reference/ports.md` of the sources, and in `docs/reference/axi-ports.md` for "
             "the ports of AXI."]
    for options, made in (("", proxies), (" with `--axi`", with_axi)):
        for role, proxy in made.items():
            lines += ["", f"## `dxpu_{role}`{options}", "", "| port | direction | bits |",
                      "|---|---|---|"]
            lines += [f"| `{name}` | {flow} | {bits} |" for name, flow, bits in _all_ports(proxy)]
    return "\n".join(lines) + "\n"


def _all_ports(proxy):
    """Name, direction and bits of each port, clocks and resets first."""
    from dxpu.proxy.verilog import plain_ports
    line = "gmii" if "gmii" in proxy.signature.members else "eth"
    domains = ["", *(f"{line}{n}_{way}_" for n in range(SHAPE["paths"]) for way in ("rx", "tx"))]
    for domain in domains:
        for name in ("clk", "rst"):
            yield f"{domain}{name}", "in", 1
    for name, flow, bits, _ in plain_ports(proxy.signature):
        yield name, flow.value.lower(), bits
