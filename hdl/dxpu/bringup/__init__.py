"""A box that sets itself up for the first host that greets it."""

from .boot import BootCounter
from .listener import Greeted, HelloListener
from .sequencer import SetUpSequencer, StandAloneState, Waits
from .stand_alone import StandAlone

__all__ = ["BootCounter", "Greeted", "HelloListener", "SetUpSequencer", "StandAlone",
           "StandAloneState", "Waits"]
