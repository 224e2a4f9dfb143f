"""Laws without Numba, the same Python interpreted: the same doubles, states and bytes to the last bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KIT = Path(__file__).parents[3] / "kit"
PATH = os.pathsep.join(map(str, (KIT.parents[1], KIT)))
LIMIT_S = 120
REPLAYED = """
from traces_kit import TRACES
from streaming.replay import replay_local
policies, log = TRACES["mutation/{}"]
print(replay_local(str(policies), [str(log)]).decisions)
"""
LIVE = """
from law_kit import Shard, policy, quota, refund, request
shard = Shard({"quotas[user=<default>]": quota(1, 20)}, replay=False)
sampled = quota(2, 10, algorithm="sampled_rate")
for number in range(3):
    at = number * 400_000
    changed = policy(at + 10, "quotas[user=alice]", sampled if number % 2 else None)
    decisions = shard.step([
        request("a", at, 1, 2, subject="user=alice"), request("b", at, 5, user="bob", strict=False), changed,
        refund(at + 20, at, 1),
        request("c", at + 30, 50, subject="user=alice", deadline_ms=3, on_late="reject"),
        request("d", at + 40, 7, user="\u00e9", answered="not_before"), request("e", at + 50, 1, subject=""),
    ], processed_ts=at + 33)
    print(decisions, shard.body, shard.dead_letters)
"""
"""Stamped subjects, changes, idle subjects leaving, texts that the scanner leaves alone; the state."""
USAGE = """
import gzip, orjson
from traces_kit import TRACES
from usage_kit import decide
from streaming.laws.dispatch.table import DispatchTable
from streaming.laws.shares.table import SharesTable
from streaming.policy.files import load_policies
from streaming.policy.timeline import PolicyTimeline
for law, table in (("dispatch", DispatchTable), ("shares", SharesTable)):
    policies, log = TRACES[f"{law}/worked"]
    events = [orjson.loads(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
    print(decide(table(), events, PolicyTimeline(load_policies(str(policies))), end=True))
"""
LIMITS = """
from usage_kit import limit_policy, replay
from event_kit import sample
BIG = 2**63 - 1
events = [
    sample(str(i), i * 60, 1 + i * i % 17 + (i > 90) * 300 + i / 7, i * 13 % 120, did_drop=i % 11 == 0)
    for i in range(160)
]
events += [sample("huge", 10**4, 1, BIG, rtt_ns=BIG, start_ns=BIG), sample("after", 10**4 + 1, 5, BIG)]
for name in ("fixed", "aimd", "aimd-plain", "vegas", "gradient", "gradient2"):
    for windowed in (True, False):
        policies = limit_policy(algorithm=name, useWindowed=windowed, gradient={"probeInterval": 40})
        print(replay(events, policies))
"""
"""Every algorithm with and without its window."""


@pytest.mark.parametrize(
    ("code", "decided"),
    [
        pytest.param(REPLAYED.format("worked"), {'"type":"admission"': 70}, id="worked"),
        pytest.param(
            REPLAYED.format("sampled"), {'"type":"admission"': 1300}, id="sampled", marks=pytest.mark.soak
        ),
        pytest.param(LIVE, {"'type': 'admission'": 15}, id="live"),
        pytest.param(USAGE, {"'type': 'dispatch'": 19, "'type': 'share'": 63}, id="usage"),
        pytest.param(LIMITS, {"'type': 'limit'": 162 * 12}, id="limits"),
    ],
)
def test_compiled_and_interpreted_say_the_same(
    code: str, decided: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """As many decisions as there are; interpreted, warnings of sums are errors."""
    exec(code, {})
    compiled = capsys.readouterr().out
    assert {text: compiled.count(text) for text in decided} == decided
    interpreted = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": PATH},
        stdout=subprocess.PIPE, timeout=LIMIT_S, check=True,
    ).stdout  # fmt: skip
    assert compiled == interpreted.decode()
