"""A serial flash at its pins: answers two commands, and reports violations of its data sheet.

All flashes of the boards keep these limits with a margin (Winbond W25Q32JV, Spansion S25FL256S,
Macronix MX25L128).
"""

import random

__all__ = ["FlashAbused", "SpiFlash"]

#: Times in ns: clock period; each half of a period; select to clock and back; unselected between
#: two commands; data before a rising edge; data after; falling edge to output; wake-up.
PERIOD, HALF, CHOICE, PAUSE, SETUP, HOLD, OUTPUT, WAKE = 62.5, 25, 8, 100, 5, 5, 20, 30_000
RELEASE, READ = 0xAB, 0x03


class FlashAbused(AssertionError):
    """The pins violate the data sheet; the message is one line."""


def must(what, why):
    if not what:
        raise FlashAbused(why)


class SpiFlash:
    """The flash; in deep power-down at power-on.

    Parameters
    ----------
    data : dict
        Bytes by address; missing bytes are 0xFF. May change at any time, also during a read.
    rng : random.Random
        Source of the output level while the output is undefined.

    Attributes
    ----------
    reads : list of int
        Addresses of all reads.
    read : int
        Number of bytes given by the last read.
    aborted : int
        Commands that ended within a byte.
    """

    def __init__(self, data, *, rng=None):
        self.data = data
        self._rng = rng or random.Random(0)
        self._cs = self._sck = self._copi = 0
        self._now = {name: -1e9 for name in ("cs", "rise", "fall", "copi", "released")}
        self._bits, self._command, self._out = 0, 0, None
        self.awake = False
        self.reads, self.read, self.aborted = [], 0, 0

    def output(self, ns) -> int:
        """Output level at time ``ns``, if no pin changes until then."""
        if self._out is None or ns - self._now["fall"] < OUTPUT:
            return self._rng.getrandbits(1)
        return self._out

    def step(self, ns, cs, sck, copi):
        """Set the pins from time ``ns`` on; ``cs`` is high when the flash is selected."""
        if cs != self._cs:
            self._choose(ns, cs, sck)
        if copi != self._copi:
            must(not cs or ns - self._now["rise"] >= HOLD, "data changes too soon after a clock")
            self._copi, self._now["copi"] = copi, ns
        if sck != self._sck:
            # In a reset the clock may end together with the select.
            must(cs or ns == self._now["cs"] and not sck, "a clock while it is not chosen")
            self._sck = sck
            if cs:
                (self._rise if sck else self._fall)(ns)

    def _choose(self, ns, cs, sck):
        self._cs = cs
        if cs:
            must(not sck, "chosen while the clock is high, which is not mode 0")
            must(ns - self._now["cs"] >= PAUSE, "chosen again too soon")
            self._bits = self._command = 0
        else:
            if self._bits % 8:
                self.aborted += 1
            else:
                must(ns - self._now["rise"] >= CHOICE, "let go too soon after a clock")
                must(self._bits >= 8, "chosen for nothing")
            if self._bits == 8 and self._command == RELEASE:
                self.awake, self._now["released"] = True, ns
            self._out = None
        self._now["cs"] = ns

    def _rise(self, ns):
        must(ns - self._now["cs"] >= CHOICE, "a clock too soon after it was chosen")
        must(ns - self._now["rise"] >= PERIOD, "the clock is too fast")
        must(not self._bits or ns - self._now["fall"] >= HALF, "the clock is low for too short")
        must(ns - self._now["copi"] >= SETUP, "data change too soon before a clock")
        self._now["rise"] = ns
        self._bits += 1
        if self._bits <= 32:
            self._command = self._command << 1 | self._copi
        if self._bits == 8:
            must(self._command in (RELEASE, READ), f"command {self._command:#04x}")
            if self._command == READ:
                must(self.awake, "a command while it is in power-down")
                must(ns - self._now["released"] >= WAKE, "a command while it wakes up")
        elif self._bits > 8:
            must(self._command >> 24 == READ or self._command >> self._bits - 8 == READ,
                 "bits behind a command that has none")
        if self._bits == 32:
            self.reads.append(self._command & 0xFF_FFFF)
            self.read = 0

    def _fall(self, ns):
        must(ns - self._now["rise"] >= HALF, "the clock is high for too short")
        self._now["fall"] = ns
        if self._bits >= 32:
            place, bit = divmod(self._bits - 32, 8)
            address = (self._command + place) & 0xFF_FFFF
            self._out = self.data.get(address, 0xFF) >> 7 - bit & 1
            self.read = place + (bit == 7)
