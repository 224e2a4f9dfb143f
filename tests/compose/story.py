"""What a stack has to stand, step by step; each step raises Failed if it does not."""

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from clients import QUOTA_EXCEEDED, create
from engine import Failed
from stack import DOWN_LIMIT_S, HEAL_LIMIT_S, PARTS, UP_LIMIT_S, Stack, until

BURST, RATE, PARTITIONS = 4, 0.001, 10
POLICIES: Final = f"""\
version: 1
quotas:
  - entity: {{user: null}}
    controller_mutation_rate: {RATE}
    controller_mutation_burst: {BURST}
"""
"""What is beyond the burst is a debt that takes an hour and a half to pay: longer than all of this."""
_DECIDED_LIMIT_S: Final = 60.0
_SCRAPED_LIMIT_S: Final = 90.0
_ANSWER_LIMIT_S: Final = 60.0
_JOBS: Final = 5
_ENFORCERS: Final = ("proxy", "admin", "collect")
_names = (f"compose-{number}" for number in itertools.count())


def comes_up(stack: Stack) -> Iterator[str]:
    """From nothing to all parts well, in the order of their health."""
    begun = time.monotonic()
    stack.compose("up", "-d", limit_s=UP_LIMIT_S)
    stack.wait_well(UP_LIMIT_S - (time.monotonic() - begun))
    yield f"from up to ready {time.monotonic() - begun:.0f} s"


def quota_holds(stack: Stack) -> Iterator[str]:
    """A client outside is let in up to its quota, then gets error 89, and both are on weir.decisions."""
    (stack.folder / "policies.yaml").write_text(POLICIES)
    words = ("run", "--rm", "tool", "policy", "apply", "policies.yaml", "--settings", "weir.yaml")
    stack.compose(*words, limit_s=_DECIDED_LIMIT_S)

    # What is created before the quota is in force is not charged to it.
    until(lambda: beyond_quota(stack), _DECIDED_LIMIT_S)
    refused_still(stack)

    def decided() -> str:
        outcomes = {decision["outcome"] for decision in stack.decisions()}
        return "" if {"allow", "reject"} <= outcomes else f"decisions on requests are {outcomes or 'none'}"

    until(decided, _DECIDED_LIMIT_S)
    yield f"created {PARTITIONS} partitions from outside, then got error {QUOTA_EXCEEDED}; both are logged"


def beyond_quota(stack: Stack) -> str:
    """Create topics; says nothing once one was refused."""
    code = create(stack.proxy, next(_names), PARTITIONS)
    return "" if code == QUOTA_EXCEEDED else f"a topic got error {code}; expected {QUOTA_EXCEEDED} in the end"


def refused_still(stack: Stack) -> None:
    """The debt is remembered: a new client gets error 89."""
    answers: list[str] = []

    def asked() -> str:
        try:
            code = create(stack.proxy, next(_names), 1)
        except Failed as error:
            return str(error)
        answers.append(str(code))
        return ""

    until(asked, _ANSWER_LIMIT_S)
    if answers != [str(QUOTA_EXCEEDED)]:
        raise Failed(f"a request beyond the quota got error {answers[0]}; expected {QUOTA_EXCEEDED}")


def is_watched(stack: Stack) -> Iterator[str]:
    """Prometheus reaches every part of Weir, and has numbers of them."""

    def scraped() -> str:
        up = {row["metric"].get("job", "?"): row["value"][1] for row in stack.metric("up")}
        down = sorted(name for name, value in up.items() if value != "1")
        return f"down are {down}, known {sorted(up)}" if down or len(up) < _JOBS - 1 else ""

    until(scraped, _SCRAPED_LIMIT_S)
    up = sorted(row["metric"].get("job", "?") for row in stack.metric("up"))
    yield f"Prometheus reaches {', '.join(up)}"


def asks_for_tokens(stack: Stack) -> Iterator[str]:
    """The admin API answers who has a token of its secret, and nobody else."""
    found = [stack.admin_status(None), stack.admin_status("wrong"), stack.admin_status(stack.token())]
    if found != [401, 401, 200]:
        raise Failed(f"the admin API answers {found} without, with a wrong and with the right token")
    yield "the admin API wants the token of its secret"


def is_confined(stack: Stack) -> Iterator[str]:
    """No part is root, writes where it should not, has unbounded memory, or shows a secret."""
    secrets = [stack.token(), stack.secret("grafana_password"), stack.secret("kafka_password")]
    if not all(secrets):
        raise Failed("a secret is empty")
    for part in PARTS:
        name = stack.container(part)
        said = stack.engine.inspect(name)
        host = said["HostConfig"]
        wrong = {
            "root": said["Config"]["User"].split(":")[0] in ("", "0", "root"),
            "a file system that can be written to": not host["ReadonlyRootfs"],
            "unbounded memory": not host["Memory"],
            "rights of root": "CAP_NET_RAW" in json.dumps(said.get("EffectiveCaps") or []),
        }
        if any(wrong.values()):
            raise Failed(f"{part} has {', '.join(what for what, there in wrong.items() if there)}")
        status = stack.engine.run_in(name, "cat", "/proc/self/status")
        if "CapEff:\t0000000000000000" not in status or "NoNewPrivs:\t1" not in status:
            raise Failed(f"{part} has rights: {[line for line in status.splitlines() if 'Cap' in line]}")
        shown = json.dumps(said) + stack.engine.ask("logs", name) + stack.engine.run_in(name, "ps", "-efww")
        if any(secret in shown for secret in secrets):
            raise Failed(f"{part} shows a secret in inspect, its log or its processes")
    yield "no part is root, has a right, writes to its image, has unbounded memory or shows a secret"


def says_its_memory(stack: Stack) -> Iterator[str]:
    """What each part takes, for the docs."""
    for part in PARTS:
        used = stack.engine.ask("stats", "--no-stream", "--format", "{{.MemUsage}}", stack.container(part))
        yield f"{part} takes {used.strip()}"


def heals(stack: Stack) -> Iterator[str]:
    """Whatever part is killed comes back by itself, and the quota holds as before."""
    for part in PARTS:
        name = stack.container(part)
        before = stack.engine.inspect(name)["State"]["StartedAt"]
        # All but init, which passes it on: what the engine itself kills it takes for stopped on purpose.
        stack.engine.ask("exec", "-d", name, "sh", "-c", "kill -9 -1")
        begun = time.monotonic()
        until(lambda name=name, before=before: _same_start(stack, name, before), HEAL_LIMIT_S)
        stack.wait_well(HEAL_LIMIT_S)
        healed_s = time.monotonic() - begun
        refused_still(stack)
        yield f"{part} killed: well again after {healed_s:.0f} s, and the quota holds"


def _same_start(stack: Stack, name: str, before: str) -> str:
    state = stack.engine.inspect(name)["State"]
    return "it was not started again" if state["StartedAt"] == before else ""


def is_upgraded(stack: Stack, tag: str, version: str) -> Iterator[str]:
    """Another image on the same volumes goes on where the last one was: batches, balances, decisions."""
    batches, begun = stack.batches(), time.monotonic()
    stack.set(WEIR_TAG=tag)
    stack.compose("up", "-d", limit_s=UP_LIMIT_S)
    stack.wait_well(UP_LIMIT_S)
    took_s = time.monotonic() - begun
    for part in ("job", *_ENFORCERS):
        labels = stack.engine.inspect(stack.container(part))["Config"]["Labels"]
        if labels.get("org.opencontainers.image.version") != version:
            raise Failed(f"{part} runs {labels.get('org.opencontainers.image.version')}; expected {version}")
    until(lambda: "" if stack.batches()[-1] > batches[-1] else "no batch since", _DECIDED_LIMIT_S)
    after = stack.batches()
    if set(range(batches[-1], after[-1] + 1)) - set(after):
        raise Failed(f"batches {batches[-1]} to {after[-1]} are not all there: {after[-20:]}")
    refused_still(stack)
    yield f"upgraded in {took_s:.0f} s; after batch {batches[-1]} came the next, and the debt is known"


def remembers(stack: Stack) -> Iterator[str]:
    """Nothing was decided twice differently, and the debt was never forgiven."""
    decisions = stack.decisions()
    by_id = defaultdict(set)
    for decision in decisions:
        # Said again every half minute while the debt is there, which is to change nothing.
        said = {name: value for name, value in decision.items() if name != "repeat"}
        by_id[decision["id"]].add(json.dumps(said, sort_keys=True))
    twice = {name: said for name, said in by_id.items() if len(said) > 1}
    if twice:
        raise Failed(f"decided twice differently: {twice}")
    charged = [each for each in decisions if each["subject"] and "repeat" not in each]
    let_in = [each for each in charged if each["outcome"] == "allow"]
    if [each["mutations"] for each in let_in] != [PARTITIONS]:
        raise Failed(f"let in were {let_in}; expected one request of {PARTITIONS} mutations")
    first = let_in[0]
    rejected = [each for each in charged if each["outcome"] == "reject"]
    for each in rejected:
        balance = first["tokens"] + (each["ts"] - first["ts"]) / 1000 * RATE
        if abs(each["tokens"] - balance) > RATE:
            raise Failed(f"{each['id']} was decided at a balance of {each['tokens']}; expected {balance}")
    yield f"{len(decisions)} decisions, {len(rejected)} refusals each at the balance that the first one left"


def goes_away(stack: Stack) -> Iterator[str]:
    """Containers, network and volumes."""
    stack.compose("down", "-v", "-t", "20", limit_s=DOWN_LIMIT_S)
    label = f"label=com.docker.compose.project={stack.project}"
    left = stack.engine.ask("ps", "-aq", "--filter", label)
    left += stack.engine.ask("volume", "ls", "-q", "--filter", label)
    if left.strip():
        raise Failed(f"left over: {left.split()}")
    yield "nothing is left of it"
