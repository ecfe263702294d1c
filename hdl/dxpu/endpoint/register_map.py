"""Registers of BAR 0 and commands of the GPU as plain data: the single definition.

The gateware (:mod:`dxpu.endpoint.registers`), the GPU model of the benches and its driver use this.
"""

__all__ = ["CLASS_CODE", "COPY_TO_GPU", "COPY_TO_HOST", "COUNTERS", "DEVICE_ID", "MAGIC",
           "MSIX_PENDING", "MSIX_TABLE", "NAME_OFFSET", "NAME_SIZE", "REGISTERS",
           "REGISTER_BAR_SIZE", "VECTORS", "VENDOR_ID"]

VENDOR_ID = 0x1234
DEVICE_ID = 0xd0a0
#: 3D controller.
CLASS_CODE = 0x030200

REGISTER_BAR_SIZE = 0x10000

#: Offsets of the registers in BAR 0.
REGISTERS = {
    "MAGIC": 0x00,  # "DXPG"
    "VERSION": 0x04,
    "SERIAL_LOW": 0x08,
    "SERIAL_HIGH": 0x0c,
    "SCRATCH": 0x10,  # read and write
    "STATUS": 0x14,  # bit 0 busy, bit 1 a command failed
    "ERROR": 0x18,  # number of failed commands; a write clears it
    "UNSUPPORTED": 0x1c,  # number of accesses refused; a write clears it
    "TAGS": 0x20,  # reads in flight; read and write
    "READ_SIZE": 0x24,  # bytes of one read; read and write
    "VRAM_MIB": 0x28,
    "RING_LOW": 0x40, "RING_HIGH": 0x44,  # host address of the command ring
    "RING_SIZE": 0x48,  # capacity in commands
    "HEAD": 0x4c,  # commands finished, modulo 2^32; a write sets it while the engine is idle
    "DOORBELL": 0x50,  # commands queued, modulo 2^32
    "FENCE_LOW": 0x58, "FENCE_HIGH": 0x5c,  # host address of the fence word; 0 for none
    "INTERRUPT": 0x60,  # a write raises the vector written
}
#: Registers that only the soft GPU has. Each is a number of TLPs, and is cleared by a write.
COUNTERS = {
    "MALFORMED": 0x80,  # dropped
    "POISONED": 0x84,  # data not used
    "UNEXPECTED": 0x88,  # completions dropped
    "TIMEOUTS": 0x8c,  # reads not completed in time
}
MAGIC = int.from_bytes(b"DXPG", "little")
#: The GPU's name in ASCII.
NAME_OFFSET, NAME_SIZE = 0x100, 64
MSIX_TABLE, MSIX_PENDING = 0x8000, 0xc000
VECTORS = 8

COPY_TO_GPU, COPY_TO_HOST = 1, 2
