"""Pictures of the performance model: ``python docs/figures/model.py NAME > model-NAME.svg``.

NAME is one of those of :data:`dxpu_performance.plots.PLOTS`. The pictures have figures of the paper
and those measured on the gateware, as `dxpu model report` draws them.
"""

import sys

from dxpu_performance.measured import read
from dxpu_performance.plots import PLOTS, draw, svg

print(svg(draw(PLOTS[sys.argv[1]], read())), end="")
