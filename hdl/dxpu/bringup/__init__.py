"""Stand-alone mode of a box: the box binds its slots to the first host that sends a HELLO, or that
opens a session under its key."""

from .boot import BootCounter
from .knock import KnockJudge
from .listener import Greeted, HelloListener
from .sequencer import SetUpSequencer, StandAloneState, Takes, Waits
from .stand_alone import StandAlone

__all__ = ["BootCounter", "Greeted", "HelloListener", "KnockJudge", "SetUpSequencer", "StandAlone",
           "StandAloneState", "Takes", "Waits"]
