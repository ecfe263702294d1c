"""Who the switch says it is, and what its slots have: the options of its configuration spaces."""

from dataclasses import dataclass

__all__ = ["MIB", "TIB", "Identity", "PlaceholderOptions", "SlotOptions"]

MIB, TIB = 1 << 20, 1 << 40


@dataclass(frozen=True)
class PlaceholderOptions:
    """What an empty slot asks firmware for, and how long it waits when the first GPU comes.

    Sizes in bytes, powers of two. The windows of a bridge have steps of 1 MiB, so less says
    nothing. The defaults suit a GPU with a 32-bit BAR of 16 MiB, an expansion ROM, and up to 32 GiB
    of video memory in a BAR, with smaller prefetchable BARs beside it.

    Parameters
    ----------
    memory : int
        32-bit BAR, not prefetchable: 1 MiB to 2 GiB.
    prefetchable : int
        64-bit BAR, prefetchable: 1 MiB to 128 TiB.
    rest : int
        Cycles for which a slot stays empty at least when software has seen that the placeholder is
        gone; twice that at most. By default 100 ms at 125 MHz, as long as a card takes to be ready.
    patience : int
        Times ``rest`` after which the GPU appears though software has shown nothing; 2 or more.
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
    """What the slots have besides an attention button and a power indicator.

    ``surprise``: a GPU may leave without notice (Hot-Plug Surprise). ``command_completed``: each
    write to Slot Control is answered by an event. ``power_controller``: software can switch the
    power of the slot, and with it the link. ``dpc``: a lost link is a Surprise Down error, and
    Downstream Port Containment is there for it and others; not together with ``surprise``, which
    says that a lost link is no error. ``strict_source``: requests from a slot whose requester ID is
    on none of its port's buses never pass, whether or not software has ACS Source Validation on.
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
    """Who the switch says it is, how fast, and what its slots have.

    The default identifiers are of nobody: whoever ships hardware puts their own here. ``serial`` is
    an EUI-64, whose lower half can be set when the hardware runs. Links inside
    the fabric have no PCIe speed of their own; what they show is what a driver will look for. A
    speed of 16.0 GT/s (4) or more would need capabilities that the ports do not have.
    ``placeholder``: what empty slots show at boot, if anything. ``latency``: nanoseconds that the
    way to a GPU adds to a request's, by which what GPUs tolerate is less upstream; by default those
    of a read at 1 Gb/s, there and back. ``latency_spacing``: cycles between two LTR messages; by
    default two in 500 us at 125 MHz.
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
