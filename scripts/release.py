"""What users of a version get: `make release` writes build/release/VERSION from the tagged commit.

    weir-VERSION-py3-none-any.whl, requirements-run.lock, weir-VERSION.tar.gz (the sources)
    weir-VERSION-manifests.tar.gz: compose/ with images of this version
    sbom.json, SHA256SUMS, and weir-VERSION-images.tar where $ENGINE (docker) builds one

Built from what git has of the commit, not from the clone's folder; the same bytes each time, but for images.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ("weir", "weir-enforcer", "weir-prometheus")
_LATEST: Final = re.compile(r"(?<=WEIR_TAG:-)latest|(?<=WEIR_TAG=)latest|(?<=weir:)latest"
                            r"|(?<=tag:-)latest|(?<=weir-prometheus:)latest|(?<=newTag: )latest")  # fmt: skip
"""Weir's own images in the manifests of a clone."""
_ENGINE_S: Final = 30
_EPOCH: Final = "SOURCE_DATE_EPOCH"


def git(root: Path, *words: str) -> bytes:
    """What git says."""
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True).stdout


def version_of(root: Path) -> str:
    """The version that may be released from here; ends with what is in the way otherwise."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    if changed := git(root, "status", "--porcelain").decode().strip():
        raise SystemExit(f"release: there are changes that are not committed; expected none:\n{changed}")
    section = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(section, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise SystemExit(f"release: CHANGELOG.md has no section; expected ## [{version}] - YYYY-MM-DD")
    tags = git(root, "tag", "--points-at", "HEAD").decode().split()
    if f"v{version}" not in tags:
        there = ", ".join(tags) or "no tag"
        raise SystemExit(f"release: HEAD has {there}; expected v{version}, the version of pyproject.toml")
    return version


def build(root: Path, version: str, into: Path) -> None:
    """Write all files of a version but for images; what lay there goes."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    epoch = git(root, "log", "-1", "--format=%ct").decode().strip()
    name = f"weir-{version}"
    packed = git(root, "archive", "--format=tar.gz", f"--prefix={name}/", "HEAD")
    (into / f"{name}.tar.gz").write_bytes(packed)
    with tempfile.TemporaryDirectory() as folder:
        sources = exported(root, Path(folder))
        environment = {**os.environ, _EPOCH: epoch, "PYTHONPATH": str(sources)}
        code = f"from setuptools import build_meta; build_meta.build_wheel({str(into.absolute())!r})"
        for words in (["-c", code], ["scripts/sbom.py", str(into.absolute() / "sbom.json")]):
            command = [sys.executable, *words]
            made = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True)
            # Only then: setuptools warns of each folder of data.
            if made.returncode:
                raise SystemExit(f"release: {words} failed:\n{made.stdout}{made.stderr}")
        shutil.copy(sources / "requirements-run.lock", into)
        pack(sources / "compose", into / f"{name}-manifests.tar.gz", version, int(epoch))


def exported(root: Path, folder: Path) -> Path:
    """What git has of the commit, as files."""
    with tarfile.open(fileobj=BytesIO(git(root, "archive", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def pack(folder: Path, into: Path, version: str, epoch: int) -> None:
    """An archive of manifests whose images of Weir have this version."""
    packed = subprocess.Popen(["gzip", "-n9"], stdin=subprocess.PIPE, stdout=into.open("wb"))
    assert packed.stdin is not None
    with packed.stdin, tarfile.open(fileobj=packed.stdin, mode="w|") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = _LATEST.sub(version, path.read_text()).encode()
            entry = tarfile.TarInfo(f"weir-{version}/{path.relative_to(folder.parent)}")
            entry.size, entry.mtime, entry.mode = len(content), epoch, path.stat().st_mode & 0o755
            archive.addfile(entry, BytesIO(content))
    if packed.wait():
        raise SystemExit("release: gzip failed")


def build_images(root: Path, version: str, into: Path) -> None:
    """Build images and save them, where there is an engine that answers; else say that they are left out."""
    engine = os.environ.get("ENGINE") or "docker"
    try:
        subprocess.run([engine, "info"], check=True, capture_output=True, timeout=_ENGINE_S)
    except (OSError, subprocess.SubprocessError):
        _say(f"images are left out: {engine} does not answer (ENGINE=podman takes another one)")
        return
    with tempfile.TemporaryDirectory() as folder:
        script = exported(root, Path(folder)) / "compose" / "build.sh"
        subprocess.run([script], env={**os.environ, "TAG": version}, check=True)
    file = into / f"weir-{version}-images.tar"
    several = ["--multi-image-archive"] if Path(engine).name == "podman" else []
    names = [f"{image}:{version}" for image in IMAGES]
    subprocess.run([engine, "save", *several, "--output", file, *names], check=True)


def main() -> None:
    """Check, build, sum up."""
    version = version_of(ROOT)
    # A wheel keeps the modes of its files.
    os.umask(0o022)
    into = ROOT / "build" / "release" / version
    build(ROOT, version, into)
    build_images(ROOT, version, into)
    files = sorted(into.iterdir())
    sums = [f"{_digest(file)}  {file.name}\n" for file in files]
    (into / "SHA256SUMS").write_text("".join(sums))
    for file in files:
        _say(f"{file.relative_to(ROOT)}, {file.stat().st_size:,} bytes")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _say(text: str) -> None:
    sys.stdout.write(f"release: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
