"""The last release and this one beside each other: job and proxies change one by one, there and back.

Two clients in a hurry ask for topics of one quota, one writes through both proxies within a resource group.
`make upgrade-test OLD=REF` names the last release; by itself it is the newest tag of a release before HEAD,
and while there is none FIRST.
"""

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Final

import orjson
import pytest
from cluster_kit import fresh
from company_kit import Company, Offender, bound, most_above
from confluent_kafka.admin import AdminClient, NewTopic
from draining_clients import Confluent, Reader
from exam_kit import Say
from job_kit import Job
from stack_kit import read_all, until

from weir.jars.folders import ROOT, jars_base

pytestmark = pytest.mark.soak
RATE, BURST = 2.0, 22.0
NAMES: Final = ("one", "two")
BOUND: Final = bound(len(NAMES), RATE, BURST)
ROUND_S = 1
STEADY_S = 8.0
SHARES_S = 90.0
"""A job that starts anew has to find its place first, and a group waits for its next round."""
GROUP: Final = "moved"
FIRST: Final = "8074ceef"
"""Of 2026-11-25, from before the first release."""
PIP_S: Final = 180


class OldRelease:
    """A version that is installed in a folder.

    Args:
        folder: for its sources and modules.

    Attributes:
        ref: its commit, as it was named.
        words: before a command of Python, so that this is the Weir it finds.
    """

    def __init__(self, folder: Path) -> None:
        self.ref = os.environ.get("WEIR_OLD") or _last_tag() or FIRST
        sources, modules = folder / "sources", folder / "modules"
        there = _git("archive", self.ref)
        if there.returncode:
            # No skip: who runs this wants to know whether versions go together.
            pytest.fail(f"no commit {self.ref} is here: git fetch --unshallow, or name one, WEIR_OLD=REF")
        with tarfile.open(fileobj=BytesIO(there.stdout)) as archive:
            archive.extractall(sources, filter="data")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(
            [*pip, "--no-build-isolation", "--target", modules, sources],
            check=True, capture_output=True, timeout=PIP_S,
        )  # fmt: skip
        # Not from this folder: `python -m` would find the Weir that stands there.
        self.words = ["env", "-C", str(folder), f"PYTHONPATH={modules}", f"WEIR_JARS={jars_base()}"]
        said = self._python("-c", "import weir; print(weir.__file__)")
        assert said.startswith(str(modules)), said

    def _python(self, *words: str) -> str:
        done = subprocess.run(
            [*self.words, sys.executable, *words], check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()


def _last_tag() -> str:
    """The newest tag of a release before HEAD; empty: there is none."""
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    return found.stdout.decode().strip() if not found.returncode else ""


def _git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=False, timeout=60)


def changes(old: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """What is started anew, and as which version: as docs/operate/upgrade.md has it, then back."""
    new: Sequence[str] = ()
    return [("job", new), ("one", new), ("two", new), ("job", old), ("one", old), ("job", new)]


class Upgraded:
    """A company whose parts are of two versions."""

    def __init__(self, company: Company, say: Say) -> None:
        self.company, self._say = company, say

    def change(self, part: str, words: Sequence[str]) -> None:
        """End a part in order, and start it as another version."""
        company, began = self.company, time.monotonic()
        if part == "job":
            assert company.job.end(signal.SIGTERM) == 0
            company.job = Job(company.folder, company.kafka.bootstrap, prefix=words)
            company.job.start()
        else:
            assert company.stop(part) == 0
            company.launch(part, prefix=words)
            company.await_all()
        self._say(f"{part} is {'old' if words else 'new'} after {time.monotonic() - began:.1f} s")

    def await_shares(self) -> None:
        """Both proxies hear of the group's shares, decided from now on."""
        since_ms = time.time_ns() // 1_000_000

        def both() -> bool:
            decided = map(orjson.loads, read_all(self.company.kafka.bootstrap, self.company.topics.decisions))
            return {one["broker"] for one in decided if one["type"] == "share" and one["ts"] > since_ms
                    and one["limits"]} >= {*NAMES}  # fmt: skip

        until(both, what="shares of both proxies", limit_s=SHARES_S)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> OldRelease:
    """Installed."""
    return OldRelease(tmp_path_factory.mktemp("old"))


def test_two_versions_stand_beside_each_other(old: OldRelease, tmp_path: Path, say: Say) -> None:
    """No record lost, no request unaccounted for, no dead letter, quotas within the bound of two proxies."""
    name, topic = fresh("hurry"), fresh(f"acme.{GROUP}.written")
    say(f"the old one is {old.ref}")
    with Company(tmp_path, job_prefix=old.words) as company, ExitStack() as clients:
        subject = company.limit(name, RATE, BURST)
        company.put("broker", {"resourceUsagePublishIntervalInSecs": ROUND_S})
        company.put(f"resourcegroups.{GROUP}", {"publishRateInMsgs": 10_000})
        company.put(f"namespaces.acme/{GROUP}", {"resourcegroup": GROUP})
        admin = AdminClient({"bootstrap.servers": company.kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
        for proxy in NAMES:
            company.launch(proxy, prefix=old.words)
        company.await_all()
        addresses = [company.proxies[proxy].bootstrap for proxy in NAMES]
        reader = clients.enter_context(Reader(",".join(addresses), topic))
        with ExitStack() as asking:
            places = list(zip(NAMES, addresses, strict=True))
            hurry = [asking.enter_context(Offender(proxy, name, at)) for proxy, at in places]
            writers = [asking.enter_context(Confluent(proxy, at, topic)) for proxy, at in places]
            upgraded = Upgraded(company, say)
            upgraded.await_shares()
            for part, words in changes(old.words):
                upgraded.change(part, words)
                upgraded.await_shares()
                time.sleep(STEADY_S)
        for client in hurry:
            say(client.figures())
        written = {value for writer in writers for value in writer.acked}
        until(lambda: written <= reader.values, limit_s=30, what="all that was acknowledged is read")
        assert [writer.failed for writer in writers] == [[], []]
        told = sum(len(client.admitted) for client in hurry)
        until(lambda: len(company.admitted(subject)) >= told, limit_s=60, what="decisions of all")
        made = company.admitted(subject)
        above, total = most_above(made, RATE, BURST), sum(one.mutations for one in made)
        law = BURST + RATE * (made[-1].at - made[0].at) / 1000
        say(f"{len(written)} records; {total} topics, by law {law:.1f}; {above:.2f} above of {BOUND:.1f}")
        assert above <= BOUND
        created = [one for one in admin.list_topics(timeout=30).topics if one.startswith(name)]
        # A client whose connection ended was not told of its topic.
        assert told <= len(created) <= total
        assert read_all(company.kafka.bootstrap, company.topics.deadletter) == []
        assert [client.failed for client in hurry] == [0, 0]
