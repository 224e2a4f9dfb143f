"""Concurrency limits as groups whose parts are shared out (docs/contract.md 3.4)."""
