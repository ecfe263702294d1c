"""Options of the configuration spaces: identity of the switch, equipment of its slots."""

from dataclasses import dataclass

__all__ = ["MIB", "TIB", "Identity", "PlaceholderOptions", "SlotOptions"]

MIB, TIB = 1 << 20, 1 << 40


@dataclass(frozen=True)
class PlaceholderOptions:
    """Resources that an empty slot requests from firmware, and waits when the first GPU comes.

    Sizes are in bytes, powers of two. Bridge windows have steps of 1 MiB, so smaller sizes have no
    use. The defaults suit a GPU with a 32-bit BAR of 16 MiB, an expansion ROM, and up to 32 GiB of
    video memory in a BAR, besides smaller prefetchable BARs.

    Parameters
    ----------
    memory : int
        32-bit BAR, not prefetchable: 1 MiB to 2 GiB.
    prefetchable : int
        64-bit BAR, prefetchable: 1 MiB to 128 TiB.
    rest : int
        Cycles for which a slot stays empty after software has seen the placeholder go: at least
        ``rest``, at most twice ``rest``. By default 100 ms at 125 MHz, the time that a card takes
        to be ready.
    patience : int
        Multiple of ``rest`` after which the GPU appears even without a reaction of software; 2 or
        more.
    """

    memory: int = 32 * MIB
    prefetchable: int = 64 << 30
    rest: int = 12_500_000
    patience: int = 10

    def __post_init__(self):
        for name, most, text in (("memory", 1 << 31, "2 GiB"),
                                 ("prefetchable", 128 * TIB, "128 TiB")):
            size = getattr(self, name)
            if (not isinstance(size, int) or size & size - 1
                    or not MIB <= size <= most):
                raise ValueError(f"{name} must be a power of two from 1 MiB to {text} in bytes, "
                                 f"not {size!r}")
        for name, least in (("rest", 1), ("patience", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")


@dataclass(frozen=True)
class SlotOptions:
    """Equipment of the slots besides an attention button and a power indicator.

    ``surprise``: a GPU may leave without notice (Hot-Plug Surprise). ``command_completed``: each
    write to Slot Control causes an event. ``power_controller``: software can switch the power of
    the slot, and with it the link. ``dpc``: a lost link is a Surprise Down error, and Downstream
    Port Containment handles this and other errors; excludes ``surprise``, by which a lost link is
    no error. ``strict_source``: requests from a slot with a requester ID outside its port's buses
    never pass, even with ACS Source Validation disabled.
    """

    surprise: bool = True
    attention_indicator: bool = False
    power_controller: bool = False
    command_completed: bool = False
    dpc: bool = False
    strict_source: bool = False

    def __post_init__(self):
        if self.dpc and self.surprise:
            raise ValueError(f"surprise must be False with dpc, not {self.surprise!r}")


@dataclass(frozen=True)
class Identity:
    """Identifiers and link properties of the switch, and options of its slots.

    The default identifiers are registered to nobody: a maker of hardware sets its own. ``serial``
    is an EUI-64, whose lower half can be set at run time. Links inside the fabric have no PCIe
    speed of their own; they show the values that a driver expects. A speed of 16.0 GT/s (4) or more
    would need capabilities that the ports lack. ``placeholder``: placeholders of empty slots at
    boot, if any. ``latency``: delay of the way to a GPU, in nanoseconds, by which the latency
    tolerance of GPUs is reduced upstream; by default that of a read at 1 Gb/s, both ways.
    ``latency_spacing``: cycles between two LTR messages; by default two in 500 us at 125 MHz.
    """

    vendor: int = 0x1234
    upstream_device: int = 0xD0F0
    downstream_device: int = 0xD0F1
    revision: int = 1
    subsystem_vendor: int = 0x1234
    subsystem: int = 0xD0F0
    serial: int = 0x0044_58FF_FE00_0001
    link_speed: int = 3
    link_width: int = 16
    slot: SlotOptions = SlotOptions()
    placeholder_device: int = 0xD0F2
    placeholder: PlaceholderOptions | None = None
    latency: int = 6000
    latency_spacing: int = 31_500

    def __post_init__(self):
        if not isinstance(self.serial, int) or self.serial not in range(1 << 64):
            raise ValueError(f"serial must be a number of 64 bits, not {self.serial!r}")
        if self.link_speed not in (1, 2, 3):
            raise ValueError(f"link_speed must be 1 to 3, not {self.link_speed!r}")
        if self.link_width not in (1, 2, 4, 8, 16):
            raise ValueError(f"link_width must be 1, 2, 4, 8 or 16, not {self.link_width!r}")
