"""First of the modules that a simulation loads, before its bench: it has no tests of its own."""

from dxpu_tools.collection import collect_rarely

from . import pulse

collect_rarely()
pulse.begin()
