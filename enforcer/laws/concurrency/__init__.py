"""Limits of the requests in flight to one partition, as an enforcer keeps them (docs/contract.md 3.4)."""
