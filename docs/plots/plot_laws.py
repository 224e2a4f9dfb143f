"""Draw what each law does as docs/plots/LAW.svg, and the simulation of concurrency limits:
`.venv/bin/python docs/plots/plot_laws.py`."""

from pathlib import Path

import plot_simulation
from law_plots import LAWS as PLOTS
from pictures import draw


def main() -> None:
    """Write every plot beside this file."""
    drawn = {law: draw(plot()) for law, plot in PLOTS.items()}
    drawn |= {name: draw(plot(), log_y=True) for name, plot in plot_simulation.PLOTS.items()}
    for name, text in drawn.items():
        (Path(__file__).parent / f"{name}.svg").write_text(text)


if __name__ == "__main__":
    main()
