"""The ground that attackers get: a real broker, and proxies before it (docs/security.md)."""

from broker_fixtures import options, proxy_with, topics, wire
from protected_kit import mine, policies_id

__all__ = ["mine", "options", "policies_id", "proxy_with", "topics", "wire"]
