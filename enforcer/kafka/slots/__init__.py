"""Concurrency limits on Kafka's protocol: what counts and what waits (docs/protocol_notes.md 3.7)."""
