"""Control and status registers: described once as data, decoded, documented, counted."""

from dxpu.csr.arbiter import RegisterArbiter
from dxpu.csr.counters import CounterBank, counter_block
from dxpu.csr.crossing import RegisterCrossing
from dxpu.csr.description import (
    Access, AddressMap, Block, Field, Placed, Register, Rows, constants, word,
)
from dxpu.csr.file import RegisterFile
from dxpu.csr.markdown import markdown
from dxpu.csr.port import (
    RegisterMux, RegisterPort, RegisterRequest, RegisterResponse, connect_ports,
)

__all__ = ["Access", "AddressMap", "Block", "CounterBank", "Field", "Placed", "Register",
           "RegisterArbiter", "RegisterCrossing", "RegisterFile", "RegisterMux", "RegisterPort",
           "RegisterRequest", "RegisterResponse", "Rows", "connect_ports", "constants",
           "counter_block", "markdown", "word"]
