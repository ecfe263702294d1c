"""Operations on a host and a box at once."""

from .errors import ManageError
from .generation import generation_after
from .proxy import Binding, Proxy

__all__ = ["attach", "detach", "pair"]


async def pair(host: Proxy, box: Proxy, *, key: bytes | None, stream: int = 0) -> None:
    """Make a host and a box peers, and let a session open; both have numbers already.

    Parameters
    ----------
    key : bytes or None
        16 bytes for the two, and nobody else. ``None``: in clear, so whoever reaches the fabric may
        take the place of either.

    Raises
    ------
    ManageError
    """
    if not host.is_host or box.is_host:
        raise ManageError(f"a pair is a host and a box, not {host.name} and {box.name}")
    numbers = await host.number(), await box.number()
    # The box first: it answers.
    for proxy, peer in ((box, numbers[0]), (host, numbers[1])):
        await proxy.add_peer(peer, clear=key is None)
        if key is not None:
            await proxy.give_key(peer, key)
        await proxy.set_boot()
        await proxy.let_open(peer, stream=stream)


async def attach(host: Proxy, port: int, box: Proxy, slot: int, *, stream: int = 0,
                 paths: int = 1) -> Binding:
    """Bind a slot of a box, from 1, to a downstream port of a host; returns the host's row.

    The box's row comes first, since the host's commit sends BIND. A row of the same binding stays,
    but for the paths; so the same command again completes an interrupted attempt.

    Raises
    ------
    ManageError
        A row is bound to something else, or a table refuses. The box's row is free again then, if
        free before.
    """
    here, there = await host.binding(port), await box.binding(slot - 1)
    numbers = await host.number(), await box.number()
    for proxy, row, peer in ((host, here, numbers[1]), (box, there, numbers[0])):
        if row.used and row.target != (peer, slot, stream):
            raise ManageError(f"{proxy.name}: row {row.row} is bound to node {row.node:#05x}, slot "
                              f"{row.slot}, stream {row.stream}: first release it")
    bound = {row.generation for row in (here, there) if row.used}
    if len(bound) == 2:
        raise ManageError(f"{host.name} and {box.name} have two generations of this binding: first "
                          "release it")
    generation = bound.pop() if bound else generation_after(
        *(row.generation for row in (here, there) if row.operation))
    await box.bind(slot - 1, numbers[0], stream=stream, paths=paths, generation=generation)
    try:
        return await host.bind(port, numbers[1], slot=slot, stream=stream, paths=paths,
                               generation=generation)
    except ManageError:
        if not there.used:
            await box.unbind(slot - 1)
        raise


async def detach(host: Proxy, port: int, box: Proxy) -> None:
    """Release both rows of a binding at once, whatever goes on; the host's first, so
    the UNBIND still finds the box's row.

    Raises
    ------
    ManageError
        If the port is not bound to the box.
    """
    held = await host.binding(port)
    if not held.used or held.node != await box.number():
        raise ManageError(f"{host.name}: port {port} is not bound to {box.name}")
    await host.unbind(port)
    await box.unbind(held.slot - 1)
