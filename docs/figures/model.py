"""Pictures of the performance model: ``python docs/figures/model.py NAME > model-NAME.svg``.

NAME is one of those of :data:`dxpu_performance.plots.PLOTS`. Figures of the gateware are those of
the stored file, if there is one.
"""

import sys

from dxpu_performance.measured import STORED, read
from dxpu_performance.plots import PLOTS, draw, svg

print(svg(draw(PLOTS[sys.argv[1]], read() if STORED.exists() else None)), end="")
