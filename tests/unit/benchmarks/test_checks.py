"""The benchmark of checks: peers that cannot be had are named, and our side is measured as it is used."""

import io
import shutil
import time
from pathlib import Path

import pytest

from benchmarks import checks
from benchmarks.kit.progress import Progress
from benchmarks.peers import build as building
from benchmarks.peers import service
from benchmarks.peers.build import CLIENT, GUBERNATOR, RATELIMIT, Unavailable, build
from benchmarks.peers.service import Answers

LONG_S = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what is built, and a command path of its own."""
    monkeypatch.setattr(building, "FOLDER", tmp_path / "bench")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake_go(folder: Path, script: str) -> None:
    """A go command that does this."""
    go = folder / "bin" / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)


def quiet(what: str) -> None:
    """Hears what is being built."""


def test_without_go_each_peer_is_skipped_with_its_reason(folder: Path) -> None:
    """And our side is still measured."""
    result = checks.run(smoke=True, progress=Progress(1, stream=io.StringIO()))
    assert [line.partition(":")[0] for line in result.skipped] == ["gubernator", "ratelimit"]
    with pytest.raises(Unavailable, match="there is no go command"):
        build(CLIENT, time.monotonic() + LONG_S, quiet)
    assert {row.what for row in result.rows if row.baseline is not None} == set()
    assert all(len(samples) > 0 for samples in result.series.values())


def test_a_build_that_fails_says_what_go_said(folder: Path) -> None:
    """Without the lines about downloads."""
    fake_go(folder, "echo go: downloading x v1; echo undefined: y; exit 1")
    with pytest.raises(Unavailable, match=r"^gubernator: the build failed: undefined: y$"):
        build(GUBERNATOR, time.monotonic() + LONG_S, quiet)


def test_a_build_is_stopped_at_its_limit(folder: Path) -> None:
    """And the reason says how to build beforehand."""
    fake_go(folder, "exec /bin/sleep 600")
    with pytest.raises(Unavailable, match="not built in time"):
        build(RATELIMIT, time.monotonic(), quiet)


def test_a_peer_is_built_once_as_a_module_of_its_own_with_its_pinned_sums(folder: Path) -> None:
    """What is there is not built again."""
    # build -mod=mod -trimpath -o PATH PACKAGE
    fake_go(folder, 'echo "$6" > "$5"')
    said: list[str] = []
    for _ in range(2):
        path = build(GUBERNATOR, time.monotonic() + LONG_S, said.append)
    assert path.read_text() == f"{GUBERNATOR.package}\n" and said == ["building gubernator v2.13.0"]
    made = folder / "bench" / "build-gubernator"
    assert "require github.com/gubernator-io/gubernator/v2 v2.13.0\n" in (made / "go.mod").read_text()
    assert (made / "go.sum").read_text().splitlines() == list(GUBERNATOR.sums)


def test_without_redis_ratelimit_is_skipped(folder: Path) -> None:
    """It is never installed by the benchmark."""
    with pytest.raises(Unavailable, match="no redis-server"), service.ratelimit(folder):
        pass


def test_a_service_that_ends_at_its_start_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not at the limit."""
    building.FOLDER.mkdir()
    shutil.copy("/bin/true", GUBERNATOR.path)
    with pytest.raises(Unavailable, match="gubernator did not start"), service.gubernator(folder):
        pass


def answers(**fields: float) -> Answers:
    """A hundred thousand checks in ten seconds, of which the service computed five."""
    made = {"checks": 100_000, "refused": 10_000, "seconds": 10.0, "cpu_s": 5.0, **fields}
    return Answers(**made, latency_us=[100.0] * 99 + [900.0], late_us=[1.0])  # type: ignore[arg-type]


def test_targets_are_met_by_comparison() -> None:
    """p99 beside p99 at one rate; decisions over the processor time of each side."""
    own = checks.Own(
        paced=[1.0] * 98 + [200.0] * 2, packed=[1.0], few=[1.0], refusals=[1.0], first=[5.0],
        cpu_us=40.0, refused=0.1,
    )  # fmt: skip
    remote = checks.Remote(paced=answers(), single=answers(), batch=answers(cpu_s=1.0))
    rows = checks._rows(checks.Scale(), own, {GUBERNATOR: remote})
    p99 = next(row for row in rows if row.what.startswith("p99 of a check at"))
    assert (p99.value, p99.baseline, p99.met) == (200.0, 100.0, False)
    single, batch = (row for row in rows if row.what == "Decisions per second and core")
    assert (single.value, single.baseline, single.met) == (25_000.0, 20_000.0, True)
    assert (batch.baseline, batch.met) == (100_000.0, False)
