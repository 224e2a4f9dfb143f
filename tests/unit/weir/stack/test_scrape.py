"""One text of metrics made of several."""

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
