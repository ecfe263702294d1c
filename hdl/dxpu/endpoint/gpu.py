"""The soft GPU: an endpoint with registers, video memory, a copy engine and interrupts.

This file only wires. Ref: docs/reference/endpoint.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.attach import PciePort
from dxpu.stream import connect
from dxpu.tlp.types import TlpClass
from dxpu.widths import Widen

from .completer import Completer
from .config_map import GpuIdentity
from .config_space import EndpointConfig
from .decoder import Decoder
from .engine import Engine
from .intake import Intake
from .interrupts import Interrupts
from .lifetime import Lifetime
from .memory import ByteMemory
from .posted import Posted
from .reads import Reads
from .registers import Registers, store_index
from .sender import Sender
from .store import Store
from .types import Errors

__all__ = ["SoftGpu"]


class SoftGpu(wiring.Component):
    """A PCIe endpoint for a slot of a box proxy, or for any other :class:`~dxpu.attach.PciePort`.

    docs/reference/endpoint.md says which functions software sees, and which are missing. The GPU
    works internally with 32 bits at every ``width``: one dword per cycle in, one out. A dword is
    written to the video memory 10 cycles after its last beat was taken. The first beat of a
    register's value is offered after 18 to 21 cycles, depending on ``width``. Packed for an ECP5 at
    64 bits: 3,962 LUT4, 1,760 flip-flops and 10 block RAMs.

    Parameters
    ----------
    width : int
        Data bits per beat of the port.
    identity : :class:`~.config_map.GpuIdentity`, optional
    vram_bytes : int
        Video memory, in block RAM: a power of two from 4 KiB to 1 MiB.
    tags : int
        Reads in flight, 1 to 8.
    timeout : int
        Completion timeout in cycles; by default 10 ms at 125 MHz.

    Members
    -------
    port : :class:`~dxpu.attach.PciePort`
        Device side of the port.
    reset : 1
        Level: hot reset. The link goes down, and comes up after ``reset`` has fallen and the video
        memory has been wiped.
    """

    def __init__(self, width, *, identity=None, vram_bytes=16384, tags=8, timeout=1_250_000):
        if (not isinstance(vram_bytes, int) or vram_bytes & vram_bytes - 1
                or not 4096 <= vram_bytes <= 1 << 20):
            raise ValueError("vram_bytes must be a power of two from 4096 to 1048576, "
                             f"not {vram_bytes!r}")
        bits = vram_bytes.bit_length() - 1
        identity = identity or GpuIdentity()
        self._intake = Intake(width)
        self._decoder = Decoder(vram_bytes)
        self._config = EndpointConfig(identity, vram_bytes=vram_bytes)
        self._registers = Registers(identity, vram_bytes=vram_bytes, tags=tags)
        self._memory = ByteMemory(vram_bytes)
        self._store = Store(3)
        self._posted = Posted(bits)
        self._completer = Completer(bits)
        self._reads = Reads(tags=tags, address_bits=bits, timeout=timeout)
        self._engine = Engine(vram_bytes)
        self._interrupts = Interrupts(bits)
        self._sender = Sender(3, bits)
        self._widen = Widen(width)
        super().__init__({"port": In(PciePort(width)), "reset": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.lifetime = lifetime = Lifetime()
        m.submodules.intake = intake = self._intake
        m.submodules.sender = sender = self._sender
        m.submodules.widen = self._widen
        m.submodules.memory = memory = self._memory
        m.submodules.store = store = self._store
        # Loss of the link ends a TLP in the middle, so it resets the decoder; a function reset does
        # not.
        m.submodules.decoder = ResetInserter(lifetime.down)(self._decoder)
        for name in ("config", "registers", "posted", "completer", "reads", "engine",
                     "interrupts"):
            m.submodules[name] = ResetInserter(lifetime.clear)(getattr(self, f"_{name}"))

        errors = Signal(Errors)
        config, completer, reads = self._config, self._completer, self._reads
        m.d.comb += [
            lifetime.reset.eq(self.reset),
            lifetime.function_reset.eq(completer.reset_due),
            memory.wipe.eq(lifetime.wipe), store.wiping.eq(memory.wiping),
            lifetime.wiping.eq(memory.wiping),
            lifetime.idle.eq(sender.idle & ~self._widen.o.valid),
            sender.hold.eq(lifetime.hold),
            self.port.link_up.eq(lifetime.link_up),
            intake.down.eq(lifetime.down),
            intake.answered.eq(completer.answered | lifetime.clear),
            config.cold.eq(lifetime.down),
            config.pending.eq(reads.pending),
            memory.read_address.eq(sender.read_address),
            memory.read_enable.eq(sender.read_enable),
            sender.read_data.eq(memory.read_data),
            errors.eq(reads.errors),
            errors.malformed.eq(intake.stat_malformed),
            errors.poisoned.eq(reads.errors.poisoned | completer.poisoned | self._posted.poisoned),
            errors.refused_np.eq(completer.refused),
            errors.refused_p.eq(self._posted.refused),
        ]
        for part in (self._decoder, completer, reads, self._engine, self._interrupts):
            m.d.comb += part.state.eq(config.state)
        for part in (config, self._registers):
            m.d.comb += part.errors.eq(errors)
        self._attach(m)
        self._attach_requests(m)
        self._attach_engine(m)
        return m

    def _attach(self, m):
        """Connect the streams of the port."""
        intake, sender, port = self._intake, self._sender, self.port
        for cls in TlpClass:
            name = cls.name.lower()
            connect(m, getattr(wiring.flipped(port), f"tx_{name}"), getattr(intake, name))
            m.d.comb += getattr(sender, name).eq(getattr(port, f"rx_{name}"))
        m.d.comb += intake.max_payload.eq(self._config.state.max_payload)
        connect(m, intake.o, self._decoder.i)
        connect(m, sender.o, self._widen.i)
        connect(m, self._widen.o, wiring.flipped(port).rx)
        for n, source in enumerate((self._completer, self._engine, self._interrupts)):
            wiring.connect(m, source.o, sender.i[n])

    def _attach_requests(self, m):
        """Connect the parts that handle the host's requests."""
        tap, completer, posted = self._decoder.o, self._completer, self._posted
        config, registers = self._config, self._registers
        for part in (completer, posted, self._reads):
            for name in tap.signature.members:
                m.d.comb += getattr(part.tap, name).eq(getattr(tap, name))
        m.d.comb += [
            config.register.eq(completer.config_register),
            completer.config_value.eq(config.value),
            config.write.eq(completer.config_write),
            config.enables.eq(completer.config_enables),
            config.data.eq(completer.config_data),
            config.target_id.eq(completer.config_target),
            completer.function_reset.eq(config.function_reset),
            registers.read_address.eq(completer.register_address),
            completer.register_data.eq(registers.read_data),
            completer.readable.eq(registers.readable),
            registers.write_address.eq(posted.register_address),
            registers.write_data.eq(tap.data),
            registers.write.eq(posted.register_write),
            posted.register_refused.eq(registers.refused),
        ]

    def _attach_engine(self, m):
        """Connect the parts that act by themselves: copy engine, reads, interrupts."""
        tap, memory, interrupts = self._decoder.o, self._memory, self._interrupts
        posted, reads, engine = self._posted, self._reads, self._engine
        registers = self._registers
        completion = tap.info.cls == TlpClass.CPL
        m.d.comb += [
            memory.write_data.eq(tap.data),
            memory.write_address.eq(Mux(completion, reads.address, posted.address)),
            memory.write_enables.eq(Mux(completion, Mux(engine.fetching, 0, reads.enables),
                                        posted.enables)),
            engine.command_index.eq(reads.address[2:]),
            engine.command_data.eq(tap.data),
            engine.command_write.eq(engine.fetching & reads.strobe),
            engine.settings.eq(registers.settings),
            *(getattr(engine, name).eq(getattr(reads, name))
              for name in ("free", "tag", "pending")),
            *(getattr(reads, name).eq(getattr(engine, name))
              for name in ("begins", "position", "dwords", "last_byte", "lower")),
            engine.read_failed.eq(reads.failed),
            reads.limit.eq(registers.settings.tags),
            *(getattr(registers, name).eq(getattr(engine, name))
              for name in ("busy", "finished", "failed")),
            interrupts.vectors.eq(registers.vectors | engine.vectors),
            interrupts.turn_off.eq(posted.turn_off),
            *(getattr(interrupts, name).eq(getattr(registers, name))
              for name in ("mask_write", "mask_vector", "mask_value")),
            *(getattr(registers, name).eq(getattr(interrupts, name))
              for name in ("vector_masks", "pending")),
        ]
        self._attach_store(m)

    def _attach_store(self, m):
        """Connect the store, its writer and its readers."""
        store, registers, completer = self._store, self._registers, self._completer
        host, *others = store.word_reader
        m.d.comb += [
            store.write.eq(registers.store_write),
            store.store_index.eq(registers.store_index),
            store.value.eq(registers.store_value),
            host.ask.eq(completer.reads_register),
            host.word_index.eq(store_index(registers.read_address)),
            completer.register_granted.eq(host.granted),
            *(part.stored.eq(store.data)
              for part in (registers, self._interrupts, self._engine)),
        ]
        for ours, theirs in zip((self._interrupts.table, self._engine.pointer), others,
                                strict=True):
            wiring.connect(m, ours, theirs)
