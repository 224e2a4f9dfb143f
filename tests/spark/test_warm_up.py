"""What workers compile: nothing, once they are warm."""

import subprocess
import sys
from pathlib import Path

from traces_kit import TRACES

CODE = """
import pkgutil, sys, streaming.columns, streaming.state
from importlib import import_module
import orjson, pyarrow as pa
from law_kit import Shard, policy, quota, refund, request
from numba.core.dispatcher import Dispatcher
from streaming import laws
from spark_kit import LIVE, SHARDS, TASKS, group_state, record_columns
from streaming.job import schemas
from streaming.job.operator import group_function, warm_up
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.routing import live_router
from streaming.replay import replay_local

def compiled():
    rooms = (streaming.columns, streaming.state, laws)
    found = [each for room in rooms for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    names = [each.name for each in found]
    values = [value for name in names for value in vars(import_module(name)).values()]
    found = {value for value in values if isinstance(value, Dispatcher)}
    return {f"{each.__module__}.{each.__name__}": list(each.signatures) for each in found}

warm_up()
before = compiled()
assert len(before) > 50, len(before)

shard = Shard({"quotas[user=<default>]": quota(1, 20)}, replay=False)
sampled = quota(2, 10, algorithm="sampled_rate")
for number in range(3):
    t = number * 400_000
    shard.step([
        request("a", t, 1, 2, subject="user=alice"), request("b", t, 5, user="bob", strict=False),
        policy(t + 10, "quotas[user=alice]", sampled if number % 2 else None), refund(t + 20, t, 1),
        request("c", t + 30, 50, subject="user=alice", deadline_ms=3), request("\\u00e9", t + 40, subject=""),
    ], processed_ts=number)
for traces in sys.argv[1:]:
    policies, *events = traces.split()
    replay_local(policies, events)
assert not shard.dead_letters
asked = [(schemas.EVENT, n, request(str(n), n, 1, subject="user=alice")) for n in range(3)]
key = (grouping_keys_of(SHARDS, TASKS)["mutation"][0],)
for sent in (), [b"sent again ten x"] * 2:
    arrow = record_columns(asked, sent=sent)
    assert list(group_function(LIVE)(key, iter([arrow]), group_state()))
usage = {f"rg{n}": {"publishedMsg": n} for n in range(40)}
report = {"type": "group_usage", "ts": 1, "broker": "b", "period_ms": 1, "usage": usage}
reports = [orjson.dumps(report)] * 3
columns = {name: list(range(3)) for name in ("partition", "offset", "ts")}
columns |= {"sent": pa.nulls(3, pa.binary())}
columns |= {"origin": pa.array([schemas.USAGE] * 3, pa.int32()), "value": pa.array(reports, pa.binary())}
router = live_router(("weir.usage",) * 8, SHARDS, TASKS, max_ahead_ms=60_000)
assert sum(map(len, router([pa.record_batch(columns)]))) > 3
limits = [orjson.dumps(policy(0, f"resourcegroups.rg{n}", {"publishRateInMsgs": 1})) for n in range(3)]
columns |= {"origin": pa.array([schemas.POLICY] * 3, pa.int32()), "value": pa.array(limits, pa.binary())}
assert sum(map(len, router([pa.record_batch(columns)]))) > 3
after = compiled()
assert before == after, {name: after[name] for name in after if before.get(name) != after[name]}
"""


def test_no_function_compiles_anew_after_warm_up() -> None:
    """A worker that compiled would hold a batch up for seconds; all laws, live and replayed."""
    traces = [f"{policies} {log}" for policies, log in TRACES.values()]
    assert len(traces) > 10
    kit = Path(__file__).parents[1] / "kit"
    path = [str(kit), str(kit.parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{CODE}", *traces],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
