"""The ground that attackers get: a real broker, and proxies before it (docs/security.md)."""

from broker_fixtures import cluster, proxy, proxy_with, topics, wire
from protected_kit import mine, policies_id

__all__ = ["cluster", "mine", "policies_id", "proxy", "proxy_with", "topics", "wire"]
