"""`make sbom`: what Weir is made of, whole and valid by the schema of CycloneDX."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]


def pinned() -> set[tuple[str, frozenset[str]]]:
    """What set-up takes, line by line: a purl's name and version, and the SHA-256 of its files."""
    found = set()
    entries = (ROOT / "requirements-run.lock").read_text().replace("\\\n", " ").splitlines()
    for line in entries:
        if "==" in line and not line.lstrip().startswith("#"):
            name, _, version = line.split()[0].partition("==")
            digests = (word for word in line.split() if word.startswith("--hash="))
            found.add((f"{name}@{version}", frozenset(word.partition("sha256:")[2] for word in digests)))
    for file in (ROOT / "weir" / "jars" / "poms").glob("*/jars.sha256"):
        for line in file.read_text().splitlines():
            digest, path = line.split()
            group, artifact, version, _ = path.rsplit("/", 3)
            found.add((f"{group.replace('/', '.')}/{artifact}@{version}", frozenset([digest])))
    return found


def test_it_names_all_that_is_pinned_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's packages and the jars of every pom, with purl and SHA-256, in one valid document."""
    into = tmp_path / "build" / "sbom.json"
    monkeypatch.setattr(sys, "argv", ["sbom.py", str(into)])
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    runpy.run_path(str(ROOT / "scripts" / "sbom.py"), run_name="__main__")
    text = into.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = json.loads(text)["components"]
    assert {one["type"] for one in components} == {"library"}
    assert {hash_["alg"] for one in components for hash_ in one["hashes"]} == {"SHA-256"}
    purls = [PackageURL.from_string(one["purl"]) for one in components]
    assert {purl.type for purl in purls} == {"pypi", "maven"}
    assert len(set(purls)) == len(purls)
    named = {
        (
            f"{purl.namespace + '/' if purl.namespace else ''}{purl.name}@{purl.version}",
            frozenset(hash_["content"] for hash_ in one["hashes"]),
        )
        for purl, one in zip(purls, components, strict=True)
    }
    assert named == pinned()
