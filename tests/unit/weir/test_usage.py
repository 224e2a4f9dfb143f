"""Words that no command understands: status 2, and what was expected, before anything is asked."""

import shlex
from pathlib import Path

import pytest

from weir import cli

SEVERAL = "--workers with --pulsar needs pulsar.targets"
"""Each worker would refuse clients that asked another one where their topic is."""
T = "persistent://acme/orders/t1"
FAILURES = "simulate failures --policies good.yaml --events good.yaml"
PROPOSE, REPLAY = "propose --events e --out o", "replay --policies good.yaml --out o"
BACK = "--from 2026-11-20 --to 2026-11-19"
"""A bill of nothing, with status 0, is taken for a bill."""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "usage: weir"),
        ("nonsense", "usage: weir"),
        ("up --listen here", "usage: weir"),
        ("tail --nonsense", "usage: weir"),
        ("dump --out x --to soon", "usage: weir dump"),
        ("admin --upstream pulsar:8080", "usage: weir admin"),
        ("admin --upstream http://pulsar:nonsense", "usage: weir admin"),
        ("proxy --workers 0", "--workers: '0'; expected a whole number at least 1 and at most 64"),
        ("proxy --pulsar nonsense", "--pulsar: 'nonsense' is not HOST:PORT"),
        ("proxy --kafka nonsense --pulsar b:6650", "--kafka: 'nonsense' is not HOST:PORT"),
        ("proxy --pulsar b:6650 --workers 2", SEVERAL),
        ("proxy --kafka nonsense --workers 2", "--kafka: 'nonsense' is not HOST:PORT"),
        # Clients would be told all of it as a host, with another port behind.
        ("proxy --advertise h:9092", "--advertise: invalid bare_host value: 'h:9092'"),
        ("proxy --advertise [::1]:9092", "--advertise: invalid bare_host value: '[::1]:9092'"),
        ("kafka --advertise h:9092", "--advertise: invalid bare_host value: 'h:9092'"),
        ("proxy --metrics 127.0.0.1:65535 --workers 2", "--metrics: too few ports behind it for 2 workers"),
        ("kafka --property log.retention.ms", "--property: 'log.retention.ms' is not NAME=VALUE"),
        ("tail --type admision", "--type: invalid choice: 'admision'"),
        ("kafka --port 65536", "'65536'; expected a whole number at least 0"),
        ("pulsar --admin-port -1", "'-1'; expected a whole number at least 0"),
        ("pulsar --heap -1", "'-1'; expected a whole number at least 1"),
        ("up --pulsar here", "--pulsar: invalid HOST:PORT or local value: 'here'"),
        ("up --pulsar h:70000", "--pulsar: invalid HOST:PORT or local value"),
        ("up --pulsar-admin h:8080", "--pulsar-admin: invalid http://HOST:PORT value: 'h:8080'"),
        ("up --pulsar-admin http://", "--pulsar-admin: invalid http://HOST:PORT value"),
        ("up --pulsar-admin http://h/?a=b", "--pulsar-admin: invalid http://HOST:PORT value"),
        ("up --pulsar-admin http://[::1", "--pulsar-admin: invalid http://HOST:PORT value"),
        ("up --pulsar-listen 16650", "--pulsar-listen: invalid HOST:PORT value: '16650'"),
        # Nobody is asked for the address of a host in brackets.
        ("collect pulsar --admin http://[x", "http://[x"),
        # It ran, and no limit was ever set.
        ("collect pulsar --no-usage --push", "--push: not allowed with argument --no-usage"),
        ("collect pulsar --admin http://a:99999", "http://a:99999"),
        ("admin --upstream http://[x", "http://[x"),
        ("up --pulsar-admin http://[x", "http://[x"),
        ("up --pulsar [x", "[x"),
        ("proxy --kafka [x --pulsar [x", "[x"),
        ("admin --listen [", "["),
        ("up --metrics 1:2:x", "1:2:x"),
        ("admin --binary-address http://a", "http://a"),
        ("collect --metrics a:65536", "a:65536"),
        ("policy log --entry nonsense", "expected quotas[...], resourcegroups.NAME"),
        ("policy log --entry quotas[client-id=a,user=b]", "--entry: "),
        (f"policy log --from {'9' * 400}", "expected milliseconds since the epoch"),
        ("policy apply good.yaml --reason \udcff", "--reason: is not UTF-8; expected text in UTF-8"),
        (f"policy apply good.yaml --reason {'x' * 1025}", "--reason: has 1025 characters; expected"),
        ("policy explain --policies good.yaml", "usage: weir policy explain"),
        ("policy explain --policies good.yaml --subscription s", "usage: weir policy explain"),
        ("policy explain --policies good.yaml --topic 't 1'", "usage: weir policy explain"),
        ("policy explain --policies good.yaml --topic acme.orders.t1", "usage: weir policy explain"),
        (f"policy explain --policies good.yaml --topic {T} --user alice", "usage: weir policy explain"),
        (f"policy explain --policies good.yaml --topic {T} --client-id x", "usage: weir policy explain"),
        ("doctor --listen 19092", "--listen: invalid HOST:PORT value: '19092'"),
        ("doctor --policies x", "usage: weir"),
        ("top --by name", "--by: invalid choice: 'name'"),
        ("top --limit 0", "'0'; expected a whole number at least 1"),
        ("top --watch 0", "'0'; expected a number at least 0.1"),
        ("explain --id a --subject b", "--subject: not allowed with argument --id"),
        ("explain", "one of the arguments --id --subject is required"),
        ("explain --id a --events f", "--decisions and --events belong together"),
        ("explain --id a --events f --decisions f --kafka a:1", "files take the place of a cluster"),
        ("explain --id a --at now", "--at belongs to --subject"),
        (REPLAY, "one of the arguments --events --from-kafka is required"),
        (f"{REPLAY} --events e --from-kafka 127.0.0.1:1", "not allowed with argument"),
        (f"{REPLAY} --events e --from -1h", "--from and --to need --from-kafka HOST:PORT"),
        (f"{REPLAY} --events e --settings s", "--settings needs --from-kafka HOST:PORT or --engine spark"),
        (f"{REPLAY} --from-kafka h:1 {BACK}", "--from is later than --to"),
        (f"{REPLAY} --events e --engine spark --against good.yaml", "leave --engine out"),
        *(
            (f"{REPLAY} --events e {wants}", "need --against POLICIES")
            for wants in ("--report r.html", "--max-new-refused 0", "--max-added-delay 1")
        ),
        (f"{REPLAY} --events e --against good.yaml --max-new-refused -1", "'-1'; expected a whole number"),
        (f"dump --out o {BACK}", "--from is later than --to"),
        (f"bill {BACK}", "--from is later than --to"),
        *(
            (f"{PROPOSE} --headroom={wrong}", "expected a number at least 1.0 and at most 1000.0")
            for wrong in ("0.9", "x", "nan", "inf", "1001", "-1")
        ),
        ("backlog --limit 0", "'0'; expected a whole number at least 1"),
        ("backlog --limit x", "'x'; expected a whole number at least 1"),
        ("backlog --watch nan", "'nan'; expected a number at least 0.1 and at most 86400"),
        ("backlog --watch 0", "'0'; expected a number at least 0.1 and at most 86400"),
        ("backlog --topic a.b.c", "--topic: 'a.b.c' may mean two topics"),
        ("backlog --topic 'a b'", "--topic: 'a b' is not a valid name"),
        # Of a ready file it was said that it is none.
        ("healthy ready.json --limit inf", "'inf'; expected a number at least 0 and at most 86400"),
        ("send e.jsonl --speed 0", "usage: weir send"),
        # Accepted, it ended in a traceback at the second event.
        ("send e.jsonl --speed 1e-307", "usage: weir send"),
        ("send e.jsonl --speed nan", "usage: weir send"),
        ("send e.jsonl --speed 2 --at-once", "usage: weir send"),
        ("send e.jsonl --now --keep-times", "usage: weir send"),
        ("send", "usage: weir send"),
        ("simulate concurrency --arrival-rate 0", "'0'; expected a number at least 0.001"),
        ("simulate concurrency --service-rate nan", "'nan'; expected a number"),
        ("simulate concurrency --slow-factor 0.5", "'0.5'; expected a number at least 1"),
        ("simulate concurrency --proxies 0", "'0'; expected a whole number at least 1"),
        ("simulate concurrency --seconds 1.5", "'1.5'; expected a whole number"),
        ("simulate concurrency --first-part 0.5", "expected --proxies of at least 2"),
        ("simulate concurrency --slow-at 80", "expected a slow time within the simulation"),
        ("simulate concurrency --arrival-rate 1e6", "expected 2000000 at most"),
        ("simulate concurrency --clients 100000 --retry-ms 1", "expected 2000000 at most"),
        ("simulate concurrency --arrival-rate 5 --clients 5", "not allowed with"),
        ("simulate concurrency --partition broker-1", "--policies and --partition go together"),
        ("simulate concurrency --policies good.yaml --partition broker-2", "limits no partition 'broker-2'"),
        ("simulate concurrency --nonsense", "--nonsense"),
        (f"{FAILURES} --proxies 2 --lost 2", "--lost 2: expected fewer than --proxies 2"),
        (f"{FAILURES} --only flood", "--only: invalid choice: 'flood'"),
        (f"{FAILURES} --away -1", "'-1'; expected a number at least 0"),
        (f"{FAILURES} --seed x", "'x'; expected a whole number at least 0"),
        *(
            (f"import kafka-request-log x --out y --timezone {zone}", "is no time zone")
            for zone in ("Nowhere/Land", "../../etc/passwd", "''")
        ),
        *(
            (f"{command} wrong.yaml", "wrong.yaml:2: quotass")
            for command in (
                f"{REPLAY} --events good.yaml --against", "propose --events good.yaml --out o --policies",
                "simulate failures --events good.yaml --policies",
                "simulate concurrency --partition p --policies",
            )
        ),
    ],
)  # fmt: skip
def test_what_no_command_understands_ends_with_2(
    words: str, told: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It says what is wrong, there is no traceback, and nothing is begun."""
    limited = "backpressure: {partitions: {broker-1: {algorithm: vegas}}}"
    for name, text in (("good.yaml", limited), ("wrong.yaml", "quotass: []")):
        file = tmp_path_factory.getbasetemp() / name
        file.write_text(f"version: 1\n{text}\n")
        words = words.replace(name, str(file))
    monkeypatch.chdir(tmp_path)
    try:
        status: object = cli.main(shlex.split(words))
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2 and told in said and "Traceback" not in said
    assert not [*tmp_path.iterdir()]
