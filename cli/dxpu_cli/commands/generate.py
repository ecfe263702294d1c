"""``dxpu generate``: a proxy as one file of plain Verilog, for any tool flow."""

import re
from dataclasses import replace

from dxpu.stream import WIDTHS
from dxpu_cli.options import NO_KEYS, file_to_write, whole_number
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "check_shape", "make", "run"]

#: Options about interfaces, and their values; the first one is the default.
AXI_CHOICES = {"ethernet": ("gmii", "axis"), "ethernet-clock": ("own", "core"),
               "tlp": ("stream", "axis"), "registers": ("bus", "axi-lite")}
AXI_HELP = {
    "ethernet": "each path as GMII with a MAC for 1 Gb/s inside, or its frames as AXI4-Streams for "
                "a faster MAC outside",
    "ethernet-clock": "with --ethernet axis: each path has clocks of its own, or that of the core",
    "tlp": "PCIe ports as streams of beats, or as AXI4-Streams",
    "registers": "registers by the register bus, or by AXI4-Lite",
}


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("role", choices=("host", "box"), help="which proxy")
    parser.add_argument("-o", "--output", required=True, help="Verilog file to write")
    parser.add_argument("--width", type=int, default=64, help="data bits per beat, 32 to 512")
    parser.add_argument("--slots", type=int, default=8,
                        help="downstream ports of a host (1 to 32), GPU slots of a box (1 to 16)")
    parser.add_argument("--paths", type=int, default=2, help="Ethernet ports, 1 to 16")
    parser.add_argument("--peers", type=int, default=16, help="other nodes it has sessions with")
    parser.add_argument("--streams", type=int, default=4,
                        help="sessions with each of them, 1, 2, 4, 8 or 16; at most 64 in all")
    parser.add_argument("--split", action="store_true",
                        help="send TLPs in the header/data split form")
    parser.add_argument("--arq", default="go-back-n",
                        help="go-back-n or selective (repeat; not with --split)")
    parser.add_argument("--dpc", action="store_true",
                        help="host: Downstream Port Containment instead of Hot-Plug Surprise")
    parser.add_argument("--strict-source", action="store_true",
                        help="host: block requests of slots with a foreign requester ID even if "
                             "ACS Source Validation is off")
    parser.add_argument("--placeholder", action="store_true",
                        help="empty slots of a host show a placeholder endpoint at boot")
    parser.add_argument("--placeholder-memory", metavar="SIZE", default=None,
                        help="its 32-bit BAR (default: 32M)")
    parser.add_argument("--placeholder-prefetchable", metavar="SIZE", default=None,
                        help="its 64-bit prefetchable BAR (default: 64G)")
    parser.add_argument("--serial", metavar="NUMBER", default=None,
                        help="host: serial number of the switch, 64 bits (EUI-64); another one for "
                             "each proxy, unless its software sets the lower half by "
                             "control.serial (default: 0x004458fffe000001)")
    parser.add_argument("--keys", action="store_true",
                        help="sessions can be opened under keys; a noise source must be connected "
                             "to the ports noise_*. Without this option whoever reaches the fabric "
                             "can take sessions over")
    parser.add_argument("--managed", action="store_true",
                        help="managers reach the registers by frames, under the key at the ports "
                             "factory_*; needs --keys")
    parser.add_argument("--observed", action="store_true",
                        help="measure what happens, for `dxpu top`")
    parser.add_argument("--axi", action="store_true",
                        help="--ethernet axis, --tlp axis and --registers axi-lite, as far as they "
                             "are not given")
    for option, choices in AXI_CHOICES.items():
        parser.add_argument(f"--{option}", choices=choices, default=None,
                            help=f"{AXI_HELP[option]} (default: {choices[0]})")
    parser.add_argument("--name", default=None, help="module name (default: dxpu_host or dxpu_box)")


def size(option, text):
    """Bytes of a size such as ``512K``, ``32M`` or ``64G``."""
    units = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
    match = re.fullmatch(r"([0-9]{1,18})([KMGT]?)", text.upper())
    if not match:
        raise UserError(f"{option} must be a size such as 32M or 64G, not {text!r}")
    return int(match[1]) << units[match[2]]


def placeholder_options(role, *, stands=False, memory=None, prefetchable=None):
    """Options of the placeholders, or ``None``; raises :exc:`UserError` on wrong values."""
    given = {"memory": memory, "prefetchable": prefetchable}
    sizes = {name: text for name, text in given.items() if text is not None}
    if sizes and not stands:
        raise UserError(f"--placeholder-{min(sizes)} needs --placeholder")
    if not stands:
        return None
    if role != "host":
        raise UserError(f"--placeholder is for a host, not for a {role}")
    from dxpu.switch import PlaceholderOptions
    found = PlaceholderOptions()
    for name, text in sizes.items():
        option = f"--placeholder-{name}"
        try:
            found = replace(found, **{name: size(option, text)})
        except ValueError as error:
            limits = str(error).removeprefix(f"{name} ").partition(" in bytes")[0]
            raise UserError(f"{option} {limits}, not {text!r}") from None
    return found


def check_shape(role, *, width, slots, paths, peers, streams):
    """Raise :exc:`UserError` unless a proxy can have this shape."""
    from dxpu.fabric.contexts import MOST
    limit = {"host": 32, "box": 16}[role]
    for what, value, allowed, text in (
        ("--width", width, WIDTHS, "one of 32, 64, 128, 256, 512"),
        ("--slots", slots, range(1, limit + 1), f"1 to {limit} for a {role}"),
        ("--paths", paths, range(1, 17), "1 to 16"),
        ("--streams", streams, (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
        ("--peers", peers, range(1, 65), "1 to 64"),
    ):
        if value not in allowed:
            raise UserError(f"{what} must be {text}, not {value}")
    if peers * streams > MOST:
        raise UserError(f"--peers times --streams must be at most {MOST}, not {peers * streams}")


def interfaces(arguments):
    """Interfaces of the proxy: arguments of :func:`make`, from options that may be ``None``.

    ``--axi`` counts for options that are not given. Raises :exc:`UserError` on options that do not
    go together.
    """
    chosen = {}
    for option, choices in AXI_CHOICES.items():
        name = option.replace("-", "_")
        axi = arguments.axi and option != "ethernet-clock"
        chosen[name] = getattr(arguments, name) or choices[axi]
    if arguments.ethernet_clock is not None and chosen["ethernet"] != "axis":
        raise UserError("--ethernet-clock needs --ethernet axis")
    return chosen


def make(role, *, width=64, slots=8, paths=2, peers=16, streams=4, split=False,
         placeholder=None, dpc=False, strict_source=False, arq="go-back-n", serial=None, keys=False,
         managed=False, observed=False, ethernet="gmii", ethernet_clock="own", tlp="stream",
         registers="bus"):
    """The proxy component; raises :exc:`UserError` on wrong values.

    With an interface of AXI it is a :class:`dxpu.axi.AxiPorts`, else the proxy itself.
    """
    check_shape(role, width=width, slots=slots, paths=paths, peers=peers, streams=streams)
    if ethernet == "axis" and width < 64:
        raise UserError(f"--ethernet axis needs --width 64 to 512, not {width}")
    from dxpu.fabric.engine import ARQ
    if arq not in ARQ:
        raise UserError(f"--arq must be one of {', '.join(ARQ)}, not {arq!r}")
    if split and arq == "selective":
        raise UserError("--arq selective does not go with --split")
    if dpc and role != "host":
        raise UserError("--dpc is for a host: only its switch has downstream ports")
    if serial is not None and role != "host":
        raise UserError("--serial is for a host: a box has no switch that shows one")
    if managed and not keys:
        raise UserError("--managed needs --keys: management has the cipher of the sessions")
    if strict_source and role != "host":
        raise UserError("--strict-source is for a host: only its switch has downstream ports")
    from dxpu.proxy import BoxProxy, HostProxy
    from dxpu.switch import Identity
    from dxpu.switch.config.identity import SlotOptions
    common = {"paths": paths, "peers": peers, "streams": streams, "split": split, "arq": arq,
              "keys": keys, "managed": managed, "observed": observed}
    if ethernet == "axis":
        from dxpu.axi import axi_mac
        common["macs"] = axi_mac(width, own_clocks=ethernet_clock == "own")
    if role == "host":
        proxy = HostProxy(width, ports=slots, **common,
                          identity=Identity(placeholder=placeholder, slot=SlotOptions(
                              surprise=not dpc, dpc=dpc, strict_source=strict_source), **(
                                  {} if serial is None else {"serial": serial})))
    else:
        proxy = BoxProxy(width, slots=slots, **common)
    if (ethernet, tlp, registers) == ("gmii", "stream", "bus"):
        return proxy
    from dxpu.axi import AxiPorts
    return AxiPorts(proxy, width=width, tlp=tlp == "axis", registers=registers == "axi-lite")


def serial_number(text):
    """Value of ``--serial``; ``None`` without the option."""
    return None if text is None else whole_number("--serial", text, 0, (1 << 64) - 1)


def run(arguments):
    """Write the file, whole or not at all."""
    name = arguments.name or f"dxpu_{arguments.role}"
    if not name.isidentifier() or not name.isascii():
        raise UserError(f"--name must be a Verilog identifier, not {name!r}")
    from dxpu_tools import verilog_file
    if name in verilog_file.KEYWORDS:
        raise UserError(f"--name must be no keyword of Verilog or SystemVerilog, not {name!r}")
    held = placeholder_options(arguments.role, stands=arguments.placeholder,
                               memory=arguments.placeholder_memory,
                               prefetchable=arguments.placeholder_prefetchable)
    proxy = make(arguments.role, width=arguments.width, slots=arguments.slots,
                 paths=arguments.paths, peers=arguments.peers, streams=arguments.streams,
                 split=arguments.split, placeholder=held, dpc=arguments.dpc,
                 strict_source=arguments.strict_source, arq=arguments.arq, keys=arguments.keys,
                 managed=arguments.managed, observed=arguments.observed,
                 serial=serial_number(arguments.serial), **interfaces(arguments))
    target = file_to_write("--output", arguments.output)
    from dxpu.proxy.verilog import PlainPorts

    from dxpu_tools.conversion import to_verilog
    arguments.name = name
    options = verilog_file.options_text(arguments)
    print(f"Generating {name}: {arguments.role} proxy, {arguments.width} bit, "
          f"{arguments.slots} slots, {arguments.paths} paths", flush=True)
    if not arguments.keys:
        print(NO_KEYS, flush=True)
    progress = Progress()
    progress.step("Writing Verilog")
    text = progress.run(lambda: to_verilog(PlainPorts(proxy), name=name))
    progress.done()
    text = verilog_file.file_text(
        text, title=f"{name}: DXPU {arguments.role} proxy", identity=verilog_file.identity_text(),
        command=f"dxpu generate {arguments.role} {options}")
    try:
        write_text(target, text)
    except OSError as error:
        raise UserError(f"cannot write {arguments.output!r}: {error.strerror}") from None
    print(f"{target}: {text.count(chr(10))} lines; ports: docs/reference/ports.md")
    return 0
