"""First module that a simulation loads, before its bench; contains no tests."""

from dxpu_tools.collection import collect_rarely

from . import pulse

collect_rarely()
pulse.begin()
