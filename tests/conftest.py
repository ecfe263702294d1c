"""Proofs and simulations leave their logs below build/, wherever pytest was started."""

import os
from pathlib import Path

# CPython 3.11 refuses to compile a large module after a generator was closed while running, which
# is how the Amaranth simulator ends; so import the one large module that pytest would import late.
import hypothesis  # noqa: F401

from dxpu_sim.collection import collect_rarely

os.chdir(Path(__file__).parents[1])
collect_rarely()
