"""cocotb benches; they run inside the simulation's process."""

from .. import pulse
from ..collection import collect_rarely

collect_rarely()
pulse.begin()
