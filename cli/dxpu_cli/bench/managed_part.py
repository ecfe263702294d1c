"""What a proxy with management has beside its engine, to be routed alone."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from dxpu.management.events import NodeEvents
from dxpu.management.unit import ManagementUnit
from dxpu.proxy.keys import KeyUnit
from dxpu.proxy.macs import lead_out
from dxpu.proxy.management import directory_of

__all__ = ["ManagedPart"]


class ManagedPart(wiring.Component):
    """Unit of management, its events, and the key unit that both share with the engine.

    Parameters
    ----------
    width, rows, paths : int
    registers : dxpu.csr.AddressMap
        Registers that managers reach.

    Members
    -------
    All of the parts that do not lead from one to another.
    """

    #: Members that are connected inside, of each part.
    INSIDE = {"unit": ("event", "cmac", "cipher", "random", "failed"), "events": ("o", "failed"),
              "keys": ("manager_cmac", "manager_cipher", "manager_random", "failed")}

    def __init__(self, width, *, rows, paths, registers):
        self._parts = {"unit": ManagementUnit(width, paths, lambda: directory_of(registers)),
                       "events": NodeEvents(paths=paths, rows=rows), "keys": KeyUnit(managed=True)}
        super().__init__({name: member for part, made in self._parts.items()
                          for name, member in made.signature.members.items()
                          if name not in self.INSIDE[part]})

    def elaborate(self, platform):
        m = Module()
        for name, part in self._parts.items():
            m.submodules[name] = part
            lead_out(m, part, self, but=self.INSIDE[name])
        unit, events, keys = self._parts.values()
        connect(m, events.o, unit.event)
        for name in ("cmac", "cipher"):
            connect(m, getattr(unit, name), getattr(keys, f"manager_{name}"))
        connect(m, keys.manager_random, unit.random)
        m.d.comb += [unit.failed.eq(keys.failed), events.failed.eq(keys.failed)]
        return m
