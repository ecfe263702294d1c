"""What software sets up in the configuration space of a host proxy's switch, without an operating
system: bus numbers, windows, enables, Max_Payload_Size."""

from collections.abc import Awaitable, Callable

__all__ = ["set_up_switch"]


async def set_up_switch(configure: Callable[..., Awaitable[int]], *, slots: int, base: int,
                        window: int) -> None:
    """Set up the upstream port at bus 1 and slots behind bus 2: each has a bus of its own, from 3
    on, and ``window`` bytes of memory, from ``base`` on; Max_Payload_Size is 512 bytes.

    ``configure(function, register, value=None)`` writes a register of the function with an ID, or
    reads one if there is no value.
    """
    last = slots - 1
    bridges = [(0x100, 1, 2, 3 + last, base, base + last * window)] + [
        (0x200 + 8 * n, 2, 3 + n, 3 + n, base + n * window, base + n * window)
        for n in range(slots)]
    for port, primary, secondary, subordinate, first, end in bridges:
        for register, value in (
                (0x18, subordinate << 16 | secondary << 8 | primary),
                (0x20, (end >> 16 & 0xFFF0) << 16 | first >> 16 & 0xFFF0), (0x04, 6)):
            await configure(port, register, value)
        await configure(port, await _express(configure, port) + 8, 2 << 5)


async def _express(configure, port):
    """Offset of the PCI Express capability."""
    at = await configure(port, 0x34) & 0xFF
    while True:
        word = await configure(port, at)
        if word & 0xFF == 0x10:
            return at
        at = word >> 8 & 0xFF
        assert at, "no PCI Express capability"
