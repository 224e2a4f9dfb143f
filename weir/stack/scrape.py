"""One metrics port for all parts of the local stack: their own texts, one after the other."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from streaming.metrics_server import MetricsListener, TlsContext
from weir.health import unverified

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_MAX_BYTES = 16 * 1024 * 1024
SECOND = ("pulsar_proxy", "collect_pulsar")
"""Parts whose series another part has too."""
_UP = "weir_part_up"
_POLL_S = 0.1
# The parts are on this machine: an HTTP proxy of the environment could not reach them.
# Their certificates, where they have any, are for the names that clients use.
OPENER = build_opener(ProxyHandler({}), HTTPSHandler(context=unverified()))


def fetch(url: str, timeout_s: float) -> str:
    """One part's metrics as text, its whole lines: half a number would be another one.

    Raises:
        OSError: it does not answer in time, or not with 200.
    """
    with OPENER.open(url, timeout=timeout_s) as answer:
        lines, newline, _ = answer.read(TEXT_MAX_BYTES).rpartition(b"\n")
    return str((lines + newline).decode("utf-8", "replace"))


def joined(sources: Mapping[str, str | None], timeout_s: float) -> str:
    """The texts of all parts and, first, which of them answered.

    Args:
        sources: part -> URL of its metrics; None: it has none now, which counts as down.
        timeout_s: limit for each, asked at the same time.
    """

    def text_of(url: str | None) -> str | None:
        try:
            return fetch(url, timeout_s) if url else None
        except (OSError, ValueError, HTTPException):
            return None

    with ThreadPoolExecutor(max_workers=max(1, len(sources))) as pool:
        texts = dict(zip(sources, pool.map(text_of, sources.values()), strict=True))
    lines = [f"# HELP {_UP} 1 if the part answered this request for metrics", f"# TYPE {_UP} gauge"]
    lines += [f'{_UP}{{part="{part}"}} {int(text is not None)}' for part, text in texts.items()]
    return "\n".join(lines) + "\n" + _families({part: text for part, text in texts.items() if text})


def _families(texts: Mapping[str, str]) -> str:
    """The texts of parts as one, each family once; series of a SECOND part have the label `part`."""
    families: dict[str, tuple[dict[str, str], list[str]]] = {}
    for part, text in texts.items():
        name = ""
        # At its newlines alone: the label of a name that a client has chosen may hold other ends of lines.
        for line in filter(None, text.split("\n")):
            words = line.split(maxsplit=3)
            if words[:2] in (["#", "HELP"], ["#", "TYPE"]) and len(words) > 2:
                name = words[2]
            about, series = families.setdefault(name, ({}, []))
            if not line.startswith("#"):
                series.append(_labelled(line, part) if part in SECOND else line)
            elif words[2:3] == [name]:
                about.setdefault(words[1], line)
    return "".join(f"{line}\n" for about, series in families.values() for line in (*about.values(), *series))


def _labelled(line: str, part: str) -> str:
    """One series with one label more, before its others."""
    name, brace, labels = line.partition("{")
    if brace:
        return f'{name}{{part="{part}",{labels}'
    name, _, value = line.partition(" ")
    return f'{name}{{part="{part}"}} {value}'


class MetricsServer(MetricsListener):
    """Serves `/metrics` in a thread of its own; `sources` are asked at every request, see `joined`.

    Raises:
        WeirError: the address is taken.
    """

    def __init__(
        self, address: tuple[str, int], sources: Callable[[], Mapping[str, str | None]], timeout_s: float,
        tls: TlsContext | None = None,
    ) -> None:  # fmt: skip
        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "only /metrics is here")
                    return
                body = joined(sources(), timeout_s).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A scrape every few seconds is not worth a line."""

        try:
            super().__init__(address, Handler, tls)
        except OSError as taken:
            where = address_text(*address)
            raise WeirError(f"{where} cannot be used for metrics: {taken.strerror}") from taken
        # Who stops it waits for so long.
        serve = partial(self.serve_forever, poll_interval=_POLL_S)
        threading.Thread(target=serve, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
