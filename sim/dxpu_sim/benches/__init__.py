"""cocotb benches; they run inside the simulation's process."""

from ..collection import collect_rarely

collect_rarely()
