"""``dxpu slots``: shows the devices in a box, from a PC with an ordinary network card."""

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu_cli.captures import CapturingPort
from dxpu_cli.options import NO_KEYS, decimal_number, file_to_write, key_in, whole_number
from dxpu_cli.progress import Progress
from dxpu_host.device import Bus, Device
from dxpu_host.errors import HostError, PortError
from dxpu_host.host import Host
from dxpu_host.port import EthernetPort, Port
from dxpu_host.sockets import SocketPort
from dxpu_host.timers import Timers
from dxpu_sim.pcie import lspci
from dxpu_tools.errors import UserError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--iface", metavar="NAME", help="Ethernet interface that leads to the box")
    where.add_argument("--socket", metavar="PATH",
                       help="UNIX socket of a simulated box (`dxpu box simulate`)")
    parser.add_argument("--box", required=True, metavar="NODE",
                        help="node number of the box, such as 0x101")
    parser.add_argument("--slots", default="1", metavar="LIST", help="slots, such as 1,2")
    parser.add_argument("--node", default="1", help="our node number")
    parser.add_argument("--generation", default="1", metavar="N",
                        help="generation of the box's rows for the slots")
    parser.add_argument("--stream", default="0", metavar="N", help="stream of the box's rows")
    parser.add_argument("--path", default="0", metavar="N", help="path that the interface is")
    parser.add_argument("--key", metavar="FILE", help="key of this host and the box, 32 "
                        "hexadecimal digits; without it the session is opened in clear")
    parser.add_argument("--slower", default="1", metavar="FACTOR",
                        help="all timers are so many times longer, for a simulated box")
    parser.add_argument("--pcap", metavar="FILE",
                        help="capture the frames that are sent and received, for Wireshark")
    parser.add_argument("--json", action="store_true", help="say it as JSON")


def _slots(text: str) -> list[int]:
    slots = [whole_number("--slots", part, 1, 255) for part in text.split(",")]
    if len(set(slots)) < len(slots):
        raise UserError(f"--slots must not name a slot twice, as {text!r} does")
    return slots


@dataclass
class _Port:
    """Slot in the tree, shown like a root port."""

    device_num: int
    subordinate: Bus
    function_num: int = 0


@dataclass
class _Root:
    """Bus above all slots."""

    last_bus_num: int
    bus_num: int = 0
    devices: list[_Port] = field(default_factory=list)


def _name(device: Any) -> str:
    size = max((bar.size for bar in device.bar.values()), default=0)
    amount = f" {size >> 20} MiB" if size >> 20 else ""
    return f"{lspci.describe(device)}{amount}, box {device.box:#05x} slot {device.slot.number}"


def _facts(device: Device) -> dict[str, Any]:
    return {
        "address": device.address, "vendor": device.vendor_id, "device": device.device_id,
        "class": device.class_code, "bridge": device.subordinate is not None,
        "box": device.box, "slot": device.slot.number,
        "bars": [{"index": n, "address": bar.address, "size": bar.size, "wide": bar.wide,
                  "prefetchable": bar.prefetchable} for n, bar in device.bar.items()],
    }


def run(arguments: argparse.Namespace) -> int:
    """Bind the slots, enumerate, show the devices, release the slots."""
    last = NODE_UNASSIGNED - 1
    node = whole_number("--node", arguments.node, 1, last)
    box = whole_number("--box", arguments.box, 1, last)
    path = whole_number("--path", arguments.path, 0, 15)
    stream = whole_number("--stream", arguments.stream, 0, 15)
    generation = whole_number("--generation", arguments.generation, 0, 0xFFFF)
    slots, factor = _slots(arguments.slots), decimal_number(
        "--slower", arguments.slower, 0.01, 1_000_000)
    key = key_in("--key", arguments.key) if arguments.key is not None else None
    pcap = file_to_write("--pcap", arguments.pcap)
    try:
        port: Port = (SocketPort(Path(arguments.socket)) if arguments.socket
                      else EthernetPort(arguments.iface, node, path))
    except PortError as error:
        raise UserError(str(error)) from None
    if pcap is not None:
        port = CapturingPort(port, pcap, f"host {node:#05x} path {path}")
    if key is None:
        print(NO_KEYS, file=sys.stderr)
    problems: list[str] = []
    buses: list[Bus] = []
    progress = Progress(sys.stderr, brief=True)

    def use(host: Host) -> None:
        try:
            progress.step(f"Connecting to box {box:#05x}")
            host.connect(box, stream)
            for slot in slots:
                progress.step(f"Looking into slot {slot}")
                try:
                    buses.append(host.bus(host.bind(box, slot, generation=generation,
                                                    stream=stream)))
                except PortError:
                    raise
                except HostError as error:
                    problems.append(str(error))
        except HostError as error:
            problems.append(str(error))

    with Host(port, node=node, path=path, timers=Timers().slower(factor),
              key=key) as host:
        progress.run(lambda: use(host))
        progress.done(failed=bool(problems))
        counters = dict(host.counters)
    _say(buses, problems, counters, arguments.json)
    return 1 if problems else 0


def _say(buses: list[Bus], problems: list[str], counters: dict[str, int], as_json: bool) -> None:
    if as_json:
        print(json.dumps({
            "ok": not problems, "problems": problems, "counters": counters,
            "devices": [_facts(device) for bus in buses for device in bus.walk()]}, indent=1))
    elif buses:
        root = _Root(buses[-1].last_bus_num)
        root.devices += [_Port(n + 1, bus) for n, bus in enumerate(buses)]
        print(lspci.tree(root, _name))
    for problem in problems:
        print(f"dxpu slots: error: {problem}", file=sys.stderr)
