"""Control and status registers: described as data; decoder, counters and documents follow."""

from .arbiter import RegisterArbiter
from .counters import CounterBank, counter_block
from .crossing import RegisterCrossing
from .description import Access, AddressMap, Block, Field, Placed, Register, Rows, constants, word
from .file import RegisterFile
from .markdown import markdown
from .port import RegisterMux, RegisterPort, RegisterRequest, RegisterResponse, connect_ports

__all__ = ["Access", "AddressMap", "Block", "CounterBank", "Field", "Placed", "Register",
           "RegisterArbiter", "RegisterCrossing", "RegisterFile", "RegisterMux", "RegisterPort",
           "RegisterRequest", "RegisterResponse", "Rows", "connect_ports", "constants",
           "counter_block", "markdown", "word"]
