"""A Pulsar cluster's backlogs: read over its admin API, and evicted by it."""
