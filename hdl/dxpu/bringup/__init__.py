"""Stand-alone mode of a box: the box binds its slots to the first host that sends a HELLO."""

from .boot import BootCounter
from .listener import Greeted, HelloListener
from .sequencer import SetUpSequencer, StandAloneState, Waits
from .stand_alone import StandAlone

__all__ = ["BootCounter", "Greeted", "HelloListener", "SetUpSequencer", "StandAlone",
           "StandAloneState", "Waits"]
