"""Pictures of the performance model: ``python docs/figures/model.py NAME > model-NAME.svg``.

NAME is one of those of :data:`dxpu_performance.plots.PLOTS`. The pictures compare the model with
the paper alone; `dxpu model report` draws those with figures of the gateware.
"""

import sys

from dxpu_performance.plots import PLOTS, draw, svg

print(svg(draw(PLOTS[sys.argv[1]], None)), end="")
