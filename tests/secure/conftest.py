"""A real broker for the session."""

from broker_fixtures import cluster, topics

__all__ = ["cluster", "topics"]
