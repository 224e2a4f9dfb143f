"""What stands around the real broker of the session."""

from broker_fixtures import topics

__all__ = ["topics"]
