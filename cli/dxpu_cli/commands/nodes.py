"""``dxpu nodes``: shows the nodes that wait for a manager, over an Ethernet interface."""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict

from dxpu.fabric.wire.format import NODE_MANAGER, Capability, Role, node_mac
from dxpu_cli.captures import CapturingPort
from dxpu_cli.options import decimal_number, file_to_write
from dxpu_cli.progress import Progress
from dxpu_host.errors import PortError
from dxpu_host.port import EthernetPort
from dxpu_manage import Identity, Manager
from dxpu_tools.errors import UserError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--iface", required=True, metavar="NAME",
                        help="Ethernet interface that leads to the fabric")
    parser.add_argument("--seconds", default="2", metavar="TIME",
                        help="how long to listen; a node speaks once a second at least")
    parser.add_argument("--pcap", metavar="FILE",
                        help="capture the frames that are sent and received, for Wireshark")
    parser.add_argument("--json", action="store_true", help="say it as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Listen, and show each node that announced itself."""
    seconds = decimal_number("--seconds", arguments.seconds, 0.01, 3600)
    pcap = file_to_write("--pcap", arguments.pcap)
    try:
        port: EthernetPort | CapturingPort = EthernetPort(arguments.iface, NODE_MANAGER)
    except PortError as error:
        raise UserError(str(error)) from None
    if pcap is not None:
        port = CapturingPort(port, pcap, f"manager at {arguments.iface}")
    progress, found = Progress(sys.stderr, brief=True), []

    def listen() -> None:
        async def whole() -> None:
            async with Manager(port, node_mac(0, NODE_MANAGER)) as manager:
                found.extend(await manager.discover(seconds))

        asyncio.run(whole())

    progress.step(f"Listening on {arguments.iface}")
    try:
        progress.run(listen)
    except PortError as error:
        progress.done(failed=True)
        raise UserError(str(error)) from None
    finally:
        port.close()
    progress.done()
    _say(found, arguments.json)
    if not found:
        print(f"no node without a number announced itself on {arguments.iface} within "
              f"{seconds:g} s: one that has a number is silent", file=sys.stderr)
    return 0


def _say(found: list[Identity], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(identity) | {"mac": identity.mac.hex(":")}
                          for identity in found], indent=2))
        return
    for identity in found:
        role = {Role.HOST: "host", Role.BOX: "box"}.get(identity.role, f"role {identity.role}")
        present = identity.present.bit_count()
        says = [role, f"{identity.slots} slots",
                *([f"{present} with a GPU"] if identity.role == Role.BOX else []),
                f"{identity.links.bit_count()} links",
                "keys" if identity.capabilities & Capability.KEYS else "no keys",
                f"{identity.table} table changes"]
        print(f"{identity.mac.hex(':')}  serial {identity.serial:#010x}  {', '.join(says)}")
