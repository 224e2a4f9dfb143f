"""Parts of Weir as talkative processes that were given secrets, and all that they let be seen."""

import base64
import http.client
import json
import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import yaml
from proxy_kit import until
from tls_kit import Authority, Way

from streaming.contract.topics import Topics
from weir.logs.topic_reader import TopicReader
from weir.stack.kafka import LocalKafka, Sasl

LIMIT_S = 30.0
NAMES = (
    "plain", "scram", "weir", "wrong", "config", "salted", "jti", "operator", "viewer", "unknown", "query",
)  # fmt: skip
"""What there is a secret for."""
TALKATIVE = """
import logging, sys, weir.log
given = weir.log.log_to_stderr
def all_of_it(part, level=0, times=None):
    given(part, logging.DEBUG, times)
    logging.getLogger("weir").setLevel(logging.DEBUG)
    # Py4J's own, which no setting switches on, is the whole of each call.
    logging.getLogger("py4j").setLevel(logging.INFO)
weir.log.log_to_stderr = all_of_it
from weir.cli import main
sys.exit(main())
"""
"""`weir`, whose log has all that any line of code has for it."""


def secret() -> str:
    """With what is escaped in URLs, and changes in URL-safe base64."""
    return f"{secrets.token_hex(10)}+/~?>{secrets.token_hex(10)}"


def forms(value: str) -> set[bytes]:
    """As it is, in URLs, JSON, hexadecimal digits, and base64 wherever it stands in a longer text."""
    raw = value.encode()
    found = {raw, quote(value, safe="").encode(), quote_plus(value).encode(), raw.hex().encode()}
    found.add(json.dumps(value)[1:-1].encode())
    for shift in range(3):
        # Without its ends, which depend on what stands beside it.
        middle = base64.b64encode(bytes(shift) + raw)[4:-4]
        found |= {middle, middle.replace(b"+", b"-").replace(b"/", b"_")}
    return found


class World:
    """What stands there, and what it tells.

    Attributes:
        secrets: by what they are for.
        told: everything that can be read, by where.
    """

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.folder, self.authority, self.told = folder, authority, dict[str, bytes]()
        self.secrets = {name: secret() for name in NAMES}
        self.pair = authority.server()
        # The middle line of the private key.
        self._key = Path(self.pair.key).read_bytes().splitlines()[1]
        self.users = Sasl(
            plain={"alice": self.secrets["plain"]},
            scram={"carol": self.secrets["scram"], "weir": self.secrets["weir"]},
        )
        self.settings = folder / "weir.yaml"
        self.bootstrap = ""
        self.parts = folder / "parts"
        self.parts.mkdir()

    def found(self) -> dict[str, list[str]]:
        """Where which secret was seen."""
        looked = {name: forms(value) for name, value in self.secrets.items()}
        looked["private key"] = {self._key}
        seen = {
            where: [name for name, shapes in looked.items() if any(shape in text for shape in shapes)]
            for where, text in self.told.items()
        }
        return {where: names for where, names in seen.items() if names}

    def write_settings(self, bootstrap: str) -> None:
        """One file for all parts, which log in there."""
        self.bootstrap = bootstrap
        tokens = self.folder / "tokens.yaml"
        tokens.write_text(
            yaml.safe_dump({"tokens": [{"token": self.secrets["operator"], "role": "operator"}]})
        )
        tokens.chmod(0o600)
        way = Way.login(self.authority.ca, "weir", self.secrets["weir"])
        tls = {"certificate": self.pair.certificate, "key": self.pair.key}
        self.settings.write_text(yaml.safe_dump({
            "kafka": {"client": {**way.rdkafka, "debug": "conf,security,feature"}},
            "job": {
                "kafka_options": {f"kafka.{name}": value for name, value in way.java.items()}, "shards": 1,
            },
            "proxy": {"tls": tls, "upstream_tls": {"ca": self.authority.ca}, "broker_port_base": 0},
            "admin": {"tls": tls, "tokens_file": str(tokens)},
        }))  # fmt: skip

    def weir(self, *words: str) -> int:
        """Run a command to its end and keep what it says; its exit status."""
        done = subprocess.run(
            command(*words, "--settings", str(self.settings)), capture_output=True, timeout=4 * LIMIT_S,
            check=False,
        )  # fmt: skip
        self.told[" ".join(words)] = done.stdout + done.stderr
        return done.returncode

    @contextmanager
    def running(self, name: str, *words: str) -> Iterator[dict[str, Any]]:
        """Run a part until this is left; gives its ready file."""
        ready, log = self.parts / f"{name}.json", self.parts / f"{name}.log"
        given = ["--kafka", self.bootstrap, "--settings", str(self.settings), "--ready-file", str(ready)]
        environment = {**os.environ, "WEIR_ADMIN_TOKENS": f"viewer:{self.secrets['viewer']}"}
        with log.open("wb") as output:
            process = subprocess.Popen(command(*words, *given), stdout=output, stderr=output, env=environment)
        try:
            until(lambda: ready.exists() or process.poll() is not None, 3 * LIMIT_S, what=f"{name} is ready")
            assert process.poll() is None, log.read_text()[-2_000:]
            yield json.loads(ready.read_text())
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT_S)
            process.kill()
            process.wait(LIMIT_S)

    def ask(self, url: str, path: str, method: str = "GET", body: str = "", **headers: str) -> int:
        """One request of the admin API; keeps what it answers, and gives the status."""
        at = urlsplit(url)
        client = http.client.HTTPSConnection(
            at.hostname or "", at.port, timeout=LIMIT_S, context=self.authority.context()
        )
        client.request(method, path, body or None, {"Content-Type": "application/json", **headers})
        answer = client.getresponse()
        said = answer.read() + str(answer.headers).encode()
        self.told[f"answer {len(self.told)} to {method} {urlsplit(path).path}"] = said
        client.close()
        return answer.status

    def keep_processes(self) -> None:
        """The command lines of all processes of this machine."""
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                self.told[str(line)] = line.read_bytes()

    def keep_page(self, name: str, url: str) -> None:
        """A page of metrics."""
        given = self.authority.context() if url.startswith("https") else None
        with urllib.request.urlopen(url, timeout=LIMIT_S, context=given) as page:
            self.told[name] = page.read()

    def keep_files(self) -> None:
        """Whatever the parts have written: logs, ready files, checkpoint, Spark's own, recordings."""
        for file in self.parts.rglob("*"):
            if file.is_file():
                self.told[str(file.relative_to(self.parts))] = file.read_bytes()

    def keep_topics(self, kafka: LocalKafka) -> None:
        """All records."""
        reader = TopicReader(kafka.bootstrap, {})
        for topic in Topics().all():
            messages = [one for span in reader.spans(topic, 0, None) for one in reader.messages(span)]
            parts = [(one.key() or b"", one.value() or b"", repr(one.headers()).encode()) for one in messages]
            rows = [one.value for span in reader.spans(topic, 0, None) for one in reader.read(span)]
            self.told[topic] = b"\n".join([*(b" ".join(each) for each in parts), *rows])
        reader.close()


def command(*words: str) -> list[str]:
    """That command of Weir's, with all that it can log."""
    return [sys.executable, "-c", TALKATIVE, *words]
