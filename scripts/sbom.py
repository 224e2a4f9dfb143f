"""What Weir is made of, as CycloneDX: `python scripts/sbom.py FILE` (`make sbom`) writes it.

Every package of requirements-run.lock and every jar of weir/jars/poms, each with its purl and the SHA-256 of
each file that set-up would take for it. Flat: locks do not say which jar needs which.
"""

import os
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from weir.jars.folders import POMS
from weir.jars.pins import pins_of

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = re.compile(r"^([^\s#=]+)==([^\s;]+)(?: ; (.*?))? \\\n((?:    --hash=sha256:\w{64}.*\n?)+)", re.M)
"""An entry of the lock: name, version, marker, hashes."""


def packages(lock: str) -> Iterator[Component]:
    """The packages of a lock file's text, with the marker of those that only some machines get."""
    for name, version, marker, hashes in _PACKAGE.findall(lock):
        digests = re.findall(r"sha256:(\w+)", hashes)
        yield _library(PackageURL("pypi", None, name, version), digests, "weir:marker", marker)


def jars(poms: Path) -> Iterator[Component]:
    """The jars of all poms, each once, with the poms that want it."""
    wanted: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for source in sorted(path for path in poms.iterdir() if path.is_dir()):
        for pin in pins_of(source):
            wanted[pin.path, pin.digest].append(source.name)
    for (path, digest), kinds in wanted.items():
        *group, artifact, version, file = path.split("/")
        rest = file.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
        also = {"type": "jar", **({"classifier": rest} if rest else {})}
        purl = PackageURL("maven", ".".join(group), artifact, version, also)
        yield _library(purl, [digest], "weir:poms", ", ".join(kinds))


def _library(purl: PackageURL, digests: list[str], said: str, value: str) -> Component:
    return Component(
        type=ComponentType.LIBRARY, name=purl.name, version=purl.version, group=purl.namespace, purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests],
        properties=[Property(name=said, value=value)] if value else [],
    )  # fmt: skip


def sbom(root: Path) -> str:
    """The document of the clone at `root`, as JSON."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    weir = Component(
        type=ComponentType.APPLICATION, name=project["name"], version=project["version"], bom_ref="weir"
    )
    parts = [*packages((root / "requirements-run.lock").read_text()), *jars(POMS)]
    bom = Bom(components=parts)
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        # The same bytes for the same sources: https://reproducible-builds.org/specs/source-date-epoch/
        bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC)
        bom.serial_number = uuid5(NAMESPACE_URL, f"weir {project['version']} {epoch}")
    bom.metadata.component = weir
    bom.register_dependency(weir, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1)


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(sbom(ROOT) + "\n")
    sys.stdout.write(f"sbom: {into}\n")
