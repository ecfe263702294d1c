"""Goodput against loss, as SVG and PNG."""

from pathlib import Path

__all__ = ["draw"]


def draw(measured: dict[float, float], theory, least: dict[float, float],
         paths: list[Path], *, mode: str) -> None:
    """Draw the goodput relative to the goodput without loss.

    Parameters
    ----------
    measured : loss to relative goodput
    theory : function of the loss
    least : loss to the relative goodput that the contract demands
    paths : files; the suffix is the format
    mode : link mode
    """
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    losses = [loss for loss in sorted(measured) if loss]
    fine = [10 ** (-3.3 + 2.5 * n / 100) for n in range(101)]
    axes.plot([100 * x for x in fine], [100 * theory(x) for x in fine], color="#9aa5b1",
              label=f"in theory ({mode}, one answer a loss)")
    axes.plot([100 * x for x in losses], [100 * measured[x] for x in losses], "o-",
              color="#2a7f9e", label="measured")
    for loss, part in least.items():
        axes.plot(100 * loss, 100 * part, "v", color="#e07a1f", markersize=9,
                  label=f"contract: at least {part:.0%} at {loss:.0%}")
    for loss in losses:
        axes.annotate(f"{measured[loss]:.1%}", (100 * loss, 100 * measured[loss]),
                      textcoords="offset points", xytext=(0, -14), ha="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("frames lost, both ways (%)")
    axes.set_ylabel("goodput kept (%)")
    axes.set_ylim(0, 105)
    axes.set_title(f"128-byte writes over a lossy 1 Gbit/s line, {mode}", loc="left", fontsize=10)
    axes.grid(color="#e3e7eb")
    axes.legend(loc="lower left", frameon=False)
    for path in paths:
        figure.savefig(path)
    plt.close(figure)
