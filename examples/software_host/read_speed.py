"""How fast does a host in software read a device, against the number of requests under way?

``python read_speed.py IFACE [--box 0x101] [--slot 1] [--slower 1]``: binds the slot, reads BAR 2 of
the device with 1 to 32 requests under way, and prints a row for each. It needs CAP_NET_RAW.
"""

import argparse
import time

from dxpu_host import EthernetPort, Host, Timers


def measure(host: Host, bar, requests: int, size: int = 128) -> tuple[float, float]:
    """Reads and megabytes in a second."""
    began = time.monotonic()
    data = bar.read(0, requests * size)
    took = time.monotonic() - began
    assert data == bar.read(0, len(data)), "the device does not keep what it holds"
    return requests / took, len(data) / took / 1e6


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("iface", help="Ethernet interface that leads to the box")
    parser.add_argument("--box", type=lambda text: int(text, 0), default=0x101)
    parser.add_argument("--slot", type=int, default=1)
    parser.add_argument("--requests", type=int, default=256, help="for each row")
    parser.add_argument("--slower", type=float, default=1, help="for a box that is simulated")
    options = parser.parse_args()
    timers = Timers().slower(options.slower)
    with Host(EthernetPort(options.iface, node=1), timers=timers, max_read=128) as host:
        device = host.bind(options.box, options.slot)
        host.enumerate()
        print("under way   reads/s     MB/s")
        for host.in_flight in (1, 2, 4, 8, 16, 32):
            reads, megabytes = measure(host, device.bar[2], options.requests)
            print(f"{host.in_flight:9} {reads:9.0f} {megabytes:8.3f}")


if __name__ == "__main__":
    main()
