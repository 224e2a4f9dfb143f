"""Settings that weir.yaml had once: constants now, or under another name."""

from typing import Final

GONE_SECTIONS: Final = ("collect_kafka",)
"""Those of which nothing is left."""
GONE: Final = {
    "job": """
        trigger_interval_ms fetch_max_wait_ms segment_timeout_s restart_timeout_s pack_min
        topics_timeout_s lease_silence_s""",
    "proxy": """
        mute_split_ms held_frames_max held_bytes_max inflight_max max_admin_frame_bytes
        max_unauthenticated_frame_bytes partial_frame_timeout_ms write_buffer_high_bytes
        write_buffer_low_bytes gathered_mb departed_max_ms descriptors_reserve pending_requests_max
        open_questions_max topics_max slot_deadline_ms brokers_max protected_ids_refresh_ms
        default_partitions default_partitions_refresh_ms own_events_max late_records_max
        late_record_ms recent_topic_ms recent_topics_max events_max share_burst_ms fetch_slice_ms
        readers_max usage_record_bytes pack_min pack_linger_ms dispatch_tail_max sample_linger_ms
        samples_max inflight_queue_max inflight_throttle_ms backlog_topics_max backlog_stale_checks
        brain_away_ms event_ack_ms event_timeout_ms connect_timeout_ms refusal_factor
        joining_fraction""",
    "pulsar": """
        targets_max first_frame_timeout_ms lookup_timeout_ms lookup_hops_max lookups_max
        publish_queue_bytes pending_sends_max producers_max consumers_max held_message_bytes
        held_unstored_max permit_answer_ms create_question_ms creations_max
        publish_queue_total_bytes held_message_bytes_total known_topic_ms known_topics_max""",
    "admin": """
        changes_max body_max_bytes body_timeout_ms requests_max idle_timeout_s usage_rows_max
        dispatch_rows_max backlog_rows_max stop_timeout_s header_timeout_ms request_timeout_ms
        tokens_env change_timeout_ms connections_max""",
    "http": """
        redirects_max replay_body_bytes counted_body_bytes read_answer_bytes body_timeout_ms
        credential_ms credentials_max replay_memory_bytes connect_timeout_ms connections_max
        answer_timeout_ms""",
    "collect": """
        request_timeout_ms interval_ms""",
    "backlog": """
        rounds_kept orders_max read_back_ms unsettled_max topics_at_once request_timeout_ms
        stop_timeout_ms order_timeout_ms metrics_topics_max""",
    "collect_pulsar": """
        attempts_max requests_at_once answer_max_bytes push_change pushes_max newcomer_fraction
        idle_rounds eviction_sample request_timeout_ms eviction_wait_ms push_apart_ms
        topics_max""",
    "kafka": """
        topics_check_ms""",
    "local": """
        scrape_timeout_s start_timeout_s stop_timeout_s restart_backoff_s restarts_max""",
}
"""Constants now: their names by section."""
MOVED: Final = {
    "job.executor_instances": "spark.executor.instances (left out for 0) in job.spark_conf",
    "job.executor_cores": "spark.executor.cores in job.spark_conf",
    "job.executor_memory_mb": "spark.executor.memory (such as 1024m) in job.spark_conf",
    "job.executor_memory_overhead_mb": "spark.executor.memoryOverhead (such as 1536m) in job.spark_conf",
    "job.executor_python": "spark.pyspark.python in job.spark_conf",
    "job.driver_host": "spark.driver.host in job.spark_conf",
    "job.driver_memory_mb": "spark.driver.memory (such as 1024m) in job.spark_conf",
    "proxy.accounts_max": "proxy.subjects_max",
    "proxy.metric_subjects_max": "a tenth of proxy.subjects_max",
    "proxy.dispatch_rows_max": "five times proxy.subjects_max",
}
"""Where those are that are settings still."""


def gone(section: str, key: str) -> str | None:
    """What to tell who has set it; None: there never was such a setting, or it is there."""
    if successor := MOVED.get(f"{section}.{key}"):
        return f"is {successor} now"
    return "is a constant now; leave it out" if key in GONE.get(section, "").split() else None
