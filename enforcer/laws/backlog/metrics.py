"""What an enforcer tells Prometheus of blocked producers: docs/metrics.md, "Blocked producers"."""

from typing import Final

from streaming.metrics import MetricTable, counter, gauge, histogram

HELD_BUCKETS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)


class BlockMetrics(MetricTable):
    """All of them."""

    prefix = "weir_producer_block_"

    blocks = gauge("Topics whose producers are blocked", "quota_type policy", "weir_producer_blocks")
    requests = counter("Requests to blocked topics, by what became of them", "quota_type policy outcome")
    held = gauge("Requests that are held now")
    held_seconds = histogram("How long a request was held", HELD_BUCKETS_S)
    stale = counter("Decisions that became too old", "outcome", "open keep")
    dropped = counter("Decisions beyond 10,000 topics")
    actions = counter("Steps of blocks logged", "step result", "begun ended", "written failed dropped")
