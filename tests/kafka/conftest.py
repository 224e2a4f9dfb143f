"""One real broker for the session, and what stands around it."""

from broker_fixtures import cluster, proxy, proxy_with, topics, way, wire

__all__ = ["cluster", "proxy", "proxy_with", "topics", "way", "wire"]
