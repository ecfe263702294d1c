"""Registers at the other end of a serial line, served by :class:`dxpu.console.Console`."""

import binascii
import re

try:
    from termios import error as TerminalError
except ImportError:  # not a Unix
    TerminalError = OSError

__all__ = ["ConsoleError", "NoRegister", "RegisterLine"]


class ConsoleError(Exception):
    """The board failed to carry out a request; the message is one line."""


class NoRegister(ConsoleError):
    """The register does not exist, or cannot be written."""


def summed(text: str) -> str:
    """``text`` with its CRC-16, as sent in every line."""
    return f"{text}*{binascii.crc_hqx(text.encode('ascii'), 0xFFFF):04x}"


class RegisterLine:
    """Registers at the other end of a serial line.

    A line damaged on the way there is sent again. A read without an answer, or with a damaged
    answer, is also sent again; a write is not, as it may have been carried out.

    Parameters
    ----------
    port
        Object with ``write(bytes)``, ``read_until(b"\\n")``, which returns after a time even
        without input, and ``reset_input_buffer()``: a ``serial.Serial``.
    tries : int
        Largest number of times that a line is sent.

    Attributes
    ----------
    epoch : None
        Commands to the table have the epoch that is there.
    """

    epoch = None

    def __init__(self, port, *, tries: int = 4):
        self._port, self._tries = port, tries

    def read(self, address: int) -> int:
        """Value of the register at a byte address.

        Raises
        ------
        ConsoleError
        """
        return self._ask(f"R {address:04x}", address, again=True)

    def read_all(self, addresses: list[int]) -> list[int]:
        """Values of registers; raises :exc:`ConsoleError`."""
        return [self.read(address) for address in addresses]

    def write(self, address: int, value: int) -> None:
        """Write the register at a byte address.

        Raises
        ------
        ConsoleError
            Also if it is unknown whether the register was written.
        """
        self._ask(f"W {address:04x} {value:08x}", address, again=False)

    def _ask(self, text, address, *, again):
        for _ in range(self._tries):
            try:
                self._port.reset_input_buffer()
            except TerminalError as error:
                raise ConsoleError(f"the serial port has gone: {error}") from None
            self._port.write(summed(text).encode("ascii") + b"\n")
            answer = self._port.read_until(b"\n").decode("latin-1").rstrip("\r\n")
            if answer == summed("?"):
                continue  # nothing was done
            if answer == summed(f"! {address:04x}"):
                raise NoRegister(f"there is no register at {address:#06x}, or it cannot be "
                                 f"{'read' if text[0] == 'R' else 'written'}")
            match = re.fullmatch(rf"(= {address:04x} ([0-9a-f]{{8}}))\*....", answer)
            if match and answer == summed(match[1]):
                return int(match[2], 16)
            if not again:
                raise ConsoleError(f"no answer to a write to {address:#06x}, which may have been "
                                   "done: read it")
        raise ConsoleError(f"no answer after {self._tries} tries: is the board configured, and are "
                           "port and baud rate right?")
