"""One text of metrics made of several."""

from http.client import BadStatusLine
from io import BytesIO

import pytest

from weir.stack import scrape

KAFKA = """\
# HELP weir_proxy_frames_total Frames
# TYPE weir_proxy_frames_total counter
weir_proxy_frames_total{api="Fetch"} 3.0
# HELP weir_proxy_pending Questions
# TYPE weir_proxy_pending gauge
weir_proxy_pending 1.0
"""
PULSAR = """\
# HELP weir_proxy_pending Questions of others
# TYPE weir_proxy_pending gauge
weir_proxy_pending 2.0
# HELP weir_proxy_frames_total Frames
# TYPE weir_proxy_frames_total counter
weir_proxy_frames_total{api="SEND"} 4.0
"""
JOINED = """\
weir_part_up{part="proxy"} 1
weir_part_up{part="pulsar_proxy"} 1
# HELP weir_proxy_frames_total Frames
# TYPE weir_proxy_frames_total counter
weir_proxy_frames_total{api="Fetch"} 3.0
weir_proxy_frames_total{part="pulsar_proxy",api="SEND"} 4.0
# HELP weir_proxy_pending Questions
# TYPE weir_proxy_pending gauge
weir_proxy_pending 1.0
weir_proxy_pending{part="pulsar_proxy"} 2.0
"""


def test_two_proxies_share_their_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each family stands once, as Prometheus wants it, and the second proxy's series say whose they are."""
    texts = {"proxy": KAFKA, "pulsar_proxy": PULSAR}
    monkeypatch.setattr(scrape, "fetch", lambda url, timeout_s: texts[url])
    assert scrape.joined({part: part for part in texts}, 1.0).partition("gauge\n")[2] == JOINED


def test_whatever_a_part_answers_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, empty lines and unknown words pass."""
    monkeypatch.setattr(scrape, "fetch", lambda url, timeout_s: "#\n# EOF\n\n# TYPE\nx 1\n")
    assert scrape.joined({"job": "u"}, 1.0).endswith("x 1\n")


def test_a_name_may_hold_other_ends_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's own choice: half a series would have Prometheus refuse the page of all parts."""
    text = 'x{entity="client-id=a\u2028b\x85c\x1cd"} 1.0\n'
    monkeypatch.setattr(scrape, "fetch", lambda url, timeout_s: text)
    assert scrape.joined({"admin": "u"}, 1.0).endswith(f"gauge\nweir_part_up{{part=\"admin\"}} 1\n{text}")


def test_a_text_that_is_cut_off_has_its_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is killed as it answers: half of a counter seemed to have begun anew."""
    monkeypatch.setattr(scrape.OPENER, "open", lambda url, timeout: BytesIO(b"x_total 12345\ny_total 12"))
    assert scrape.fetch("u", 1.0) == "x_total 12345\n"


def test_a_part_that_answers_no_http_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of the others comes all the same."""

    def fetch(url: str, timeout_s: float) -> str:
        raise BadStatusLine("\x15\x03\x01")

    monkeypatch.setattr(scrape, "fetch", fetch)
    assert scrape.joined({"job": "u"}, 1.0).endswith('weir_part_up{part="job"} 0\n')
