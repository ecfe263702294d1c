"""First module loaded by a simulation, before the bench; contains no tests."""

from dxpu_tools.collection import collect_rarely

from . import pulse

collect_rarely()
pulse.begin()
