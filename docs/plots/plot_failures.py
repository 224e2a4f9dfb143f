"""What `weir simulate failures` says of the made-up day: picture and table of docs/plan.md.

    PYTHONPATH=. .venv/bin/python docs/plots/plot_failures.py

Some minutes: it writes `failures.json`, and from it picture and table; a test sees that they are of it.
"""

import tempfile
from pathlib import Path

import orjson

from benchmarks.load.day import TOMORROW, write
from streaming.policy.files import load_policies
from weir.simulate.failures.demand import Demand
from weir.simulate.failures.figures import figures, table
from weir.simulate.failures.picture import draw
from weir.simulate.failures.scenario import Failures

HERE = Path(__file__).parent
POLICIES = TOMORROW.replace("producer_request_hold}", "producer_request_hold, actions: true}")
"""Tomorrow's, whose backlog quota acts."""


def main() -> None:
    """As the first lines say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, seed=1)
        (folder / "policies.yaml").write_text(POLICIES)
        demand = Demand.read([str(folder / "day.jsonl.gz")])
        result = figures(demand, load_policies(str(folder / "policies.yaml")), Failures())
    (HERE / "failures.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    (HERE / "failures.svg").write_text(draw(result))
    (HERE / "failures.txt").write_text("\n".join(table(result)) + "\n")


if __name__ == "__main__":
    main()
