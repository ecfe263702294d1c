"""Memories of which no word is read while it is written.

Ref: docs/explanation/synthesis.md, "Block RAM without a bypass"
"""

from amaranth import *
from amaranth.lib import memory

__all__ = ["CHECKED", "DisjointMemory"]

#: Platform of netlists that assert what their parts claim. (Amaranth's queues have assumptions of
#: their own for ``"formal"``.)
CHECKED = "checked"


class DisjointMemory(memory.Memory):
    """A memory whose ports never meet: no word is read in the cycle in which it is written.

    Amaranth, as Verilog, defines such a read: the old word. A block RAM with two ports promises
    nothing of the kind, so synthesis adds registers for the written word and its address, a
    comparator, and a multiplexer behind the RAM. The attribute ``no_rw_check`` tells synthesis that
    the owner of the memory needs none of these.

    The owner's claim is an assertion in every netlist made for the platform :data:`CHECKED`: that
    of the unit tests' simulations, and of the proofs of the owners' contracts.

    Parameters
    ----------
    shape, depth, init, attrs
        As of :class:`amaranth.lib.memory.Memory`.

    Raises
    ------
    ValueError
        For a read port that is asynchronous: what it reads is defined in any case.
    """

    def __init__(self, *, shape, depth, init, attrs=None, src_loc_at=0):
        super().__init__(shape=shape, depth=depth, init=init, src_loc_at=1 + src_loc_at,
                         attrs={**(attrs or {}), "no_rw_check": 1})

    def read_port(self, *, domain="sync", transparent_for=(), src_loc_at=0):
        """A synchronous read port."""
        if domain == "comb" or transparent_for:
            raise ValueError("a port of a DisjointMemory must be synchronous and not transparent")
        return super().read_port(domain=domain, src_loc_at=1 + src_loc_at)

    def elaborate(self, platform):
        instance = super().elaborate(platform)
        if platform != CHECKED:
            return instance
        m = Module()
        m.submodules.instance = instance
        for write in self.write_ports:
            for read in self.read_ports:
                if read.domain == write.domain:
                    m.d[read.domain] += Assert(
                        ~(read.en & write.en.any() & (read.addr == write.addr)),
                        "a word is read while it is written")
        return m
