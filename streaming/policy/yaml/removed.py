"""Settings that weir.yaml had once, and what became of each."""

from typing import Final

GONE: Final[dict[str, dict[str, float | str]]] = {
    "proxy": {
        "mute_split_ms": 25_000, "held_frames_max": 256, "held_bytes_max": 1_048_576, "inflight_max": 1_000,
        "max_admin_frame_bytes": 2_097_152, "max_unauthenticated_frame_bytes": 524_288,
        "partial_frame_timeout_ms": 120_000, "write_buffer_high_bytes": 1_048_576,
        "write_buffer_low_bytes": 262_144, "gathered_mb": 48, "departed_max_ms": 30_000,
        "descriptors_reserve": 256, "pending_requests_max": 10_000, "open_questions_max": 100,
        "topics_max": 100_000, "slot_deadline_ms": 30_000, "brokers_max": 512,
        "protected_ids_refresh_ms": 2_000, "default_partitions": 1, "default_partitions_refresh_ms": 60_000,
        "own_events_max": 100_000, "late_records_max": 10_000, "late_record_ms": 600_000,
        "recent_topic_ms": 5_000, "recent_topics_max": 10_000, "events_max": 20_000, "share_burst_ms": 500,
        "fetch_slice_ms": 250, "readers_max": 100_000, "usage_record_bytes": 524_288, "pack_min": 16,
        "pack_linger_ms": 20, "dispatch_tail_max": 20_000, "sample_linger_ms": 100, "samples_max": 200,
        "inflight_queue_max": 1_000, "inflight_throttle_ms": 100, "backlog_topics_max": 10_000,
        "backlog_stale_checks": 3, "brain_away_ms": 5_000,
    },
    "pulsar": {
        "targets_max": 1_000, "first_frame_timeout_ms": 30_000, "lookup_timeout_ms": 10_000,
        "lookup_hops_max": 20, "lookups_max": 1_000, "publish_queue_bytes": 16_777_216,
        "pending_sends_max": 1_000, "producers_max": 10_000, "consumers_max": 20_000,
        "held_message_bytes": 33_554_432, "held_unstored_max": 1_000, "permit_answer_ms": 5_000,
        "create_question_ms": 5_000, "creations_max": 1_000,
    },
    "http": {
        "redirects_max": 5, "replay_body_bytes": 5_242_880, "counted_body_bytes": 65_536,
        "read_answer_bytes": 16_777_216, "body_timeout_ms": 10_000,
    },
    "backlog": {
        "rounds_kept": 3, "orders_max": 1_000, "read_back_ms": 600_000, "unsettled_max": 10_000,
    },
    "collect_kafka": {
        "requests_at_once": 4, "partitions_per_request": 1_000, "answer_max_bytes": 64 * 1024 * 1024,
        "groups_max": 200_000, "ledgers_max": 64, "first_step_ms": 60_000, "first_steps": 12,
        "publish_times_ms": 3_000, "publish_times_at_once": 2_000,
        "publish_times_buffer_bytes": 16 * 1024 * 1024,
    },
    "collect_pulsar": {
        "attempts_max": 3, "requests_at_once": 8, "answer_max_bytes": 256 * 1024 * 1024,
        "push_change": 0.05, "pushes_max": 200, "newcomer_fraction": 0.05, "idle_rounds": 3,
        "eviction_sample": 100,
    },
}  # fmt: skip
"""By section: the number that a setting is fixed at now, or what to use in its place."""


def gone(section: str, key: str) -> str | None:
    """What to tell who has set it; None: there never was such a setting, or it is there."""
    now = GONE.get(section, {}).get(key)
    if now is None or isinstance(now, str):
        return now and f"is gone; use {now}"
    return f"is a constant now ({now}); leave it out"
