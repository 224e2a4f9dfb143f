"""Rules as settings have them: what fits, and what is wrong with one, with its line."""

from pathlib import Path
from typing import Any

import pytest
from each_kit import each

from enforcer.http.pulsar_rules import PULSAR
from enforcer.http.rules import Rule, Rules
from enforcer.http.settings import HttpSettings
from enforcer.wire.http.paths import BadPath, plain, segments_of
from streaming.contract.errors import ConfigError
from streaming.policy.settings import read_settings


@each(
    ("method", "path", "operation"),
    [
        ("PUT", "/admin/v2/persistent/t/n/p", "createNonPartitionedTopic"),
        ("put", "/admin/v2/persistent/t/n/p", "createNonPartitionedTopic"),
        ("PUT", "/admin/v2/non-persistent/t/n/p%2Fq/partitions", "createPartitionedTopic"),
        ("DELETE", "/admin/persistent/t/c/n/p/partitions", "deletePartitionedTopic"),
        ("DELETE", "/admin/namespaces/t/c/n", "deleteNamespace"),
        ("GET", "/admin/v2/persistent/t/n/p/partitions", None),
        ("PUT", "/admin/v2/persistent/t/n", None),
        ("PUT", "/admin/v2/persistent/t/n/p/subscription/s", None),
        ("PUT", "/admin/v2/namespaces/t/n", None),
        ("DELETE", "/admin/v2/namespaces/t/n/dispatchRate", None),
        ("PUT", "/admin/v3/persistent/t/n/p", None),
        ("POST", "/admin/v2/persistent/t/n/p/unload", None),
        ("PUT", "/", None),
    ],
)
def test_pulsars_own(method: str, path: str, operation: str | None) -> None:
    """What changes partitions, and what does not."""
    found = Rules(PULSAR).find(method, path)
    assert (found.rule.operation if found else None) == operation


def test_paths() -> None:
    """What servers take away is taken away first."""
    assert plain("/a;x/b;y=z?c;d#e") == "/a/b"
    assert plain("https://host:80/a/b") == "/a/b"
    assert plain("host") == "/" and plain("*") == "/"
    assert segments_of("/") == ()
    with pytest.raises(BadPath):
        segments_of("/a/%2E%2e/b")


@each("path", ["/t%2Fnew", "/t/old%2Fparts", "/t/x%2f..%2fnew", "//t%2F/new"])
def test_an_encoded_slash_is_no_way_past_a_rule(path: str) -> None:
    """Some servers decode a path before they cut it; a slash in a name is as it was."""
    made: dict[str, Any] = {"method": "PUT", "operation": "create", "name": "{topic}", "cost": "constant"}
    rules = Rules(Rule(path=rule, **made) for rule in ("/t/{topic}", "/t/{topic}/parts"))
    with pytest.raises(BadPath, match="encoded slash"):
        rules.find("PUT", path)
    assert rules.find("GET", "/t%2Fnew") is None and rules.find("PUT", "/t/old%2Fnew") is not None


RULE = "method: PUT, path: '/t/{topic}', operation: create, name: '{topic}', cost: constant"


@each(
    ("line", "told"),
    [
        (RULE.replace("PUT", "put"), "rules[0].method: is the text 'put'; expected an HTTP method"),
        (RULE.replace("/t/{topic}", "t"), "rules[0].path: is no path"),
        (RULE.replace("/t/{topic}", "/t/x{topic}"), "rules[0].path: is no path"),
        (RULE.replace("constant", "free"), "rules[0].cost: is the text 'free'; expected one of constant"),
        (RULE.replace("constant", "current"), "expected a path in current exactly with growth and current"),
        (RULE + ", current: '/t'", "expected a path in current exactly with growth and current"),
        (RULE.replace("name: '{topic}'", "name: '{other}'"), "has {other} in name; expected names of path"),
        (RULE.replace("name: '{topic}', ", ""), "has neither name nor name_field"),
        (RULE.replace("operation: create, ", ""), "rules[0].operation: is missing"),
        (RULE + ", costs: 1", "rules[0].costs: is not a known key"),
        (RULE + ", number: -1", "rules[0].number: is -1; expected"),
    ],
)
def test_a_bad_rule_is_told_with_its_line(line: str, told: str, tmp_path: Path) -> None:
    """File, line, key, and what was expected."""
    file = tmp_path / "weir.yaml"
    file.write_text(f"http:\n  rules:\n  - {{{line}}}\n")
    with pytest.raises(ConfigError) as bad:
        read_settings(HttpSettings, "http", str(file))
    (problem,) = bad.value.problems
    text = f"{problem.path}: {problem.message}"
    assert told in text and problem.line in (2, 3) and problem.file == str(file)


@pytest.mark.parametrize("url", ["pulsar:8080", "ftp://x", "http://", "http://h:x", "http://h:99999"])
def test_a_bad_upstream_is_told(url: str, tmp_path: Path) -> None:
    """As any setting."""
    file = tmp_path / "weir.yaml"
    file.write_text(f"http:\n  upstream: {url}\n")
    with pytest.raises(ConfigError, match="upstream"):
        read_settings(HttpSettings, "http", str(file))
