"""Draw what each law says of itself as docs/plots/LAW.svg: `.venv/bin/python docs/plots/plot_laws.py`."""

from pathlib import Path

from pictures import draw

from streaming.laws.registry import LAWS

# Both tables name the laws in one order.
PLOTS = {law.name: law.plot for law in LAWS.by_name.values() if law.plot is not None}


def main() -> None:
    """Write every plot beside this file."""
    for law, plot in PLOTS.items():
        (Path(__file__).parent / f"{law}.svg").write_text(draw(plot()))


if __name__ == "__main__":
    main()
