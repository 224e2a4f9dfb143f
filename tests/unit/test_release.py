"""`make release`: what it refuses, and that it makes whole files, the same ones each time."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NO_ENGINE = "/no/engine"


def run(*words: str | Path, cwd: Path) -> str:
    """What a command says; fails the test if it fails."""
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of what is here, committed and tagged."""
    folder = tmp_path / "clone"
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file() and not name.startswith(("docs/", "tests/", "benchmarks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    run("git", "init", "-q", cwd=folder)
    commit(folder)
    run("git", "tag", f"v{VERSION}", cwd=folder)
    return folder


def commit(folder: Path) -> None:
    """All that is there."""
    run("git", "add", "-A", cwd=folder)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a", cwd=folder)


def release(folder: Path, umask: str = "022", engine: str = NO_ENGINE) -> subprocess.CompletedProcess[str]:
    """Run it there."""
    words = ["sh", "-c", f"umask {umask} && exec {sys.executable} scripts/release.py"]
    environment = {"ENGINE": engine, "PATH": os.environ["PATH"]}
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.mark.soak
def test_the_files_are_whole_and_the_same_each_time(clone: Path) -> None:
    """Sums match; the wheel has this version, manifests its images; without an engine there are none."""
    engine = clone.parent / "engine"
    engine.write_text(f'#!/bin/sh\necho "$*" >>{clone.parent}/asked\n[ "$1" != save ] || echo saved >"$3"\n')
    engine.chmod(0o755)
    sums = clone / "build" / "release" / VERSION / "SHA256SUMS"
    with_images = release(clone, "077", str(engine))
    digest = hashlib.sha256(b"saved\n").hexdigest()
    made = [sums.read_text().replace(f"{digest}  weir-{VERSION}-images.tar\n", "")]
    asked = (clone.parent / "asked").read_text()
    assert with_images.returncode == 0 and asked.count("\nbuild ") == 3, with_images.stderr
    assert asked.endswith(f" weir:{VERSION} weir-enforcer:{VERSION} weir-prometheus:{VERSION}\n")
    done = release(clone)
    assert done.returncode == 0, done.stderr
    assert f"images are left out: {NO_ENGINE} does not answer" in done.stdout
    made.append(sums.read_text())
    assert made[0] == made[1]
    folder = clone / "build" / "release" / VERSION
    named = dict(line.split("  ")[::-1] for line in made[0].splitlines())
    assert named.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for name, digest in named.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    with zipfile.ZipFile(folder / f"weir-{VERSION}-py3-none-any.whl") as wheel:
        assert f"\nVersion: {VERSION}\n" in wheel.read(f"weir-{VERSION}.dist-info/METADATA").decode()
        assert "weir/cli.py" in wheel.namelist()
    assert json.loads((folder / "sbom.json").read_text())["metadata"]["component"]["version"] == VERSION
    with tarfile.open(folder / f"weir-{VERSION}.tar.gz") as sources:
        assert f"weir-{VERSION}/pyproject.toml" in sources.getnames()
    assert images(folder / f"weir-{VERSION}-manifests.tar.gz") == {f"weir:{VERSION}"}


def images(archive: Path) -> set[str]:
    """Those of Weir's parts in the manifests, which all are of one version, and in compose's defaults."""
    with tarfile.open(archive) as files:
        texts = {entry.name: (files.extractfile(entry) or files).read().decode() for entry in files}  # type: ignore[union-attr]
    found = set()
    for name, text in texts.items():
        if "/k8s/" in name and name.endswith(".yaml"):
            documents = list(yaml.safe_load_all(text))
            specs = [one.get("spec", {}) for one in documents]
            pods = [spec["template"]["spec"] for spec in specs if "template" in spec]
            found |= {one["image"] for pod in pods for one in pod["containers"]}
            # An overlay's tag goes before what the base says.
            tags = [one for each in documents for one in each.get("images", [])]
            found |= {f"{one['name']}:{one['newTag']}" for one in tags}
        elif name.endswith("compose/README.md"):
            assert f" weir:{VERSION} " in text, name
        elif name.endswith(("compose.yaml", ".env.example", "secrets.sh")):
            assert not re.search(r"(?<!grafana:)\blatest\b", text), name
            assert name.endswith("secrets.sh") or f"weir-prometheus:{VERSION}" in text
    return found


def test_what_is_no_release_is_refused(clone: Path) -> None:
    """Before anything is written."""
    new, tag = clone / "new", f"v{VERSION}"
    for change, told in (
        (new.touch, "changes that are not committed; expected none:\n?? new"),
        (new.unlink, ""),
        (lambda: run("git", "tag", "-d", tag, cwd=clone), f"HEAD has no tag; expected {tag}"),
        (lambda: run("git", "tag", tag, cwd=clone), ""),
        (lambda: edit(clone, "README.md", "Weir", "weir"), f"HEAD has no tag; expected {tag}"),
        (lambda: edit(clone, "pyproject.toml", f'version = "{VERSION}"', 'version = "9.9.9"'),
         "CHANGELOG.md has no section; expected ## [9.9.9] - YYYY-MM-DD"),
    ):  # fmt: skip
        change()
        if told:
            done = release(clone)
            assert done.returncode == 1 and told in done.stderr, done.stderr
            assert not (clone / "build").exists()


def edit(clone: Path, name: str, old: str, new: str) -> None:
    """Have another text in a file, committed."""
    file = clone / name
    file.write_text(file.read_text().replace(old, new, 1))
    commit(clone)


def test_the_changelog_has_the_version() -> None:
    """What pyproject.toml says has its section, so that a tag is all that a release lacks."""
    assert re.search(rf"^## \[{re.escape(VERSION)}\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
