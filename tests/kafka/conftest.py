"""What stands around the one real broker of the session."""

from broker_fixtures import proxy_with, topics, way, wire

__all__ = ["proxy_with", "topics", "way", "wire"]
