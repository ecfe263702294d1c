"""A box without PCIe hardware: a box proxy with soft GPUs in its slots.

This file only wires.
"""

from dataclasses import replace

from amaranth import *
from amaranth.lib import wiring

from dxpu.proxy.box import BoxProxy
from dxpu.proxy.macs import lead_out

from .config_map import GpuIdentity
from .gpu import SoftGpu

__all__ = ["BoxWithGpus"]


class BoxWithGpus(wiring.Component):
    """Box proxy whose first slots hold soft GPUs; only Ethernet and registers are ports.

    The GPU of slot n + 1 has the serial number of ``identity`` plus n. The manager marks the slots
    with a GPU as present in the registers, as for other GPUs. The other slots are empty: their
    links are down, so a host that binds one sees no card there.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots, paths : int
        Numbers of slots and of Ethernet paths. Further keywords go to
        :class:`~dxpu.proxy.box.BoxProxy`.
    gpus : int, optional
        Number of GPUs, 1 to ``slots``; by default one in each slot.
    identity : :class:`~.config_map.GpuIdentity`, optional
        Identity of the first GPU.
    gpu : dict, optional
        Further arguments of :class:`~.gpu.SoftGpu`.

    Members
    -------
    gmii, links, bus, noise, factory, knock
        Same ports as the box proxy: GMII and link state of each path, register bus, noise, factory
        record, who knocks.

    Raises
    ------
    ValueError
        For another number of GPUs. Without any the box would have nothing to offer.
    """

    #: Ports of the proxy that the GPUs are at.
    INSIDE = ("slot", "reset", "wipes")

    def __init__(self, width, *, slots=8, paths=2, gpus=None, identity=None, gpu=None, **proxy):
        gpus = slots if gpus is None else gpus
        if gpus not in range(1, slots + 1):
            raise ValueError(f"gpus must be 1 to {slots}, the number of slots, not {gpus!r}")
        self._proxy = BoxProxy(width, slots=slots, paths=paths, **proxy)
        first = identity or GpuIdentity()
        self._gpus = [SoftGpu(width, identity=replace(first, serial=first.serial + n),
                              **(gpu or {})) for n in range(gpus)]
        #: The register map of the proxy (:class:`~dxpu.csr.AddressMap`).
        self.registers = self._proxy.registers
        #: Events that the proxy counts.
        self.pulses = self._proxy.pulses
        #: A good frame that the proxy refused (:class:`~dxpu.fabric.receive.types.Refused`).
        self.refused = self._proxy.refused
        #: There is a peer whose sessions are opened without a key.
        self.clear = self._proxy.clear
        super().__init__({name: member for name, member in self._proxy.signature.members.items()
                          if name not in self.INSIDE})

    def elaborate(self, platform):
        m = Module()
        m.submodules.proxy = proxy = self._proxy
        lead_out(m, proxy, self, but=self.INSIDE)
        m.d.comb += proxy.wipes.eq(-1)
        for n, gpu in enumerate(self._gpus):
            m.submodules[f"gpu{n + 1}"] = gpu
            wiring.connect(m, proxy.slot[n], gpu.port)
            m.d.comb += gpu.reset.eq(proxy.reset[n])
        for slot in list(proxy.slot)[len(self._gpus):]:
            m.d.comb += [slot.link_up.eq(0),
                         *(getattr(slot, f"tx_{name}").ready.eq(1) for name in ("p", "np", "cpl"))]
        return m
