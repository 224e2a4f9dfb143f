"""The series, a value each minute or so, on which each alert of compose/prometheus has to fire, alone.

`ALERT too` is another way to have it fire.
"""

from typing import Final

GROWS: Final = "0+6x100"
HIGH: Final = "0+600x100"
ON: Final = "1x100"
OFF: Final = "0x100"

CASES: Final[dict[str, dict[str, str]]] = {
    "WeirProxyDown": {'weir_part_up{part="pulsar_proxy"}': OFF},
    "WeirJobDown": {'up{job="weir-job",part="job"}': OFF},
    "WeirAdminDown": {'up{job="weir-admin",part="admin"}': OFF},
    "WeirCollectorDown": {'weir_part_up{part="collect"}': OFF},
    "WeirStackDown": {'up{job="weir"}': OFF},
    "WeirProxyRestarts": {"weir_proxy_loop_delay_seconds_count": "0+1x20 0+1x20 0+1x20 0+1x40"},
    "WeirTopicFault": {'weir_job_topic_faults{topic="weir.usage",fault="missing"}': ON},
    "WeirTopicReplaced": {'weir_proxy_topics_replaced_total{topic="weir.usage"}': "0x60 1x40"},
    "WeirUnusableRecords": {'weir_proxy_unusable_records_total{topic="weir.policies"}': "0x60 1x40"},
    "WeirBadPolicyRecords": {"weir_admin_bad_policy_records": ON},
    "WeirDecisionsLate": {"weir_proxy_late_decisions_total": GROWS},
    "WeirEventsLost": {
        'weir_proxy_events_total{result="sent"}': GROWS,
        'weir_proxy_events_total{result="dropped"}': "0x60 1x40",
    },
    "WeirAnswersUnacknowledged": {"weir_unacknowledged_answers_total": GROWS},
    "WeirLocalDecisionsLost": {'weir_proxy_local_uncommon_total{what="lost"}': GROWS},
    # Each says every 5 s that it lives; a few words are of a process before a restart.
    "WeirSameName": {"weir_proxy_same_name_total": "0+12x100"},
    "WeirDecisionsDiffer": {
        'weir_local_differences_total{subject="user=alice"}': GROWS,
        "weir_job_decisions_total": "0+60x100",
    },
    "WeirMutationsChargedLater": {'weir_proxy_corrected_mutations_total{kind="charged"}': GROWS},
    "WeirJobStopped": {"weir_job_last_batch_number": "7x100"},
    "WeirJobBehind": {'weir_job_source_lag_records{topic="weir.requests"}': "5x100"},
    "WeirDecisionsSlow": {
        'weir_job_decision_age_seconds_bucket{le="1.0"}': OFF,
        'weir_job_decision_age_seconds_bucket{le="5.0"}': GROWS,
        'weir_job_decision_age_seconds_bucket{le="+Inf"}': GROWS,
    },
    "WeirDeadLetters": {"weir_job_dead_letters_total": "0x60 1x40"},
    "WeirJobRestarts": {"weir_job_restarts_total": "0x20 1x10 2x10 3x60"},
    "WeirJobClock": {"weir_job_brokers_clock_ahead_seconds": "-2x100"},
    "WeirCheckpointSlow": {
        'weir_job_batch_seconds_bucket{phase="commit",le="1.0"}': OFF,
        'weir_job_batch_seconds_bucket{phase="commit",le="5.0"}': GROWS,
        'weir_job_batch_seconds_bucket{phase="commit",le="+Inf"}': GROWS,
    },
    "WeirStateLarge": {"weir_job_state_bytes": "600000000x100"},
    "WeirProxyMemory": {'weir_proxy_closed_connections_total{reason="memory"}': "0x60 1x40"},
    "WeirProxyLoopSlow": {
        'weir_proxy_loop_delay_seconds_bucket{le="0.1"}': OFF,
        'weir_proxy_loop_delay_seconds_bucket{le="1.0"}': GROWS,
        'weir_proxy_loop_delay_seconds_bucket{le="+Inf"}': GROWS,
    },
    "WeirProxyConnectionsFull": {"weir_proxy_connections": "95x100", "weir_proxy_connections_max": "100x100"},
    "WeirUnmetered": {"weir_proxy_unmetered_total": GROWS},
    "WeirProxyMistake": {'weir_proxy_bad_frames_total{reason="internal"}': "0x60 1x40"},
    "WeirRequestsDropped": {'weir_proxy_dropped_requests_total{reason="departed"}': HIGH},
    "WeirBrokerUnreachable": {'weir_proxy_upstream_failures_total{reason="refused"}': HIGH},
    "WeirLoginsRefused": {'weir_proxy_refused_logins_total{reason="mechanism"}': GROWS},
    "WeirForbiddenTried": {'weir_proxy_refused_changes_total{api="ALTER_CLIENT_QUOTAS"}': GROWS},
    "WeirPulsarTargetsRefused": {"weir_pulsar_refused_targets_total": GROWS},
    "WeirSharesExpired": {'weir_group_state{group="g",state="expired"}': ON},
    "WeirSharesUnfair": {
        'weir_group_unmet_ratio{group="g",dimension="publishRateInMsgs"}': "0.5x100",
        'weir_group_fairness_ratio{group="g",dimension="publishRateInMsgs"}': "0.2x100",
    },
    "WeirGroupLimitLow": {
        'weir_group_unmet_ratio{group="g",dimension="publishRateInMsgs"}': "0.9x100",
        'weir_group_fairness_ratio{group="g",dimension="publishRateInMsgs"}': "0.95x100",
    },
    "WeirGroupOvershoot": {'weir_group_overshoot_ratio{group="g",dimension="publishRateInMsgs"}': "0.3x100"},
    "WeirDebtForgiven": {'weir_group_forgiven_total{group="g",dimension="publishRateInMsgs"}': GROWS},
    "WeirDispatchUnlimited": {'weir_dispatch_uncommon_total{what="unkept"}': GROWS},
    "WeirDispatchAmbiguous": {"weir_dispatch_ambiguous_fetches_total": GROWS},
    "WeirDispatchLarge": {"weir_dispatch_large_fetches_total": GROWS},
    "WeirConcurrencyAtFloor": {
        'weir_concurrency_limit{partition="broker-0"}': "40x30 20x70",
        'zeebe_received_request_count_total{partition="broker-0"}': HIGH,
        'zeebe_dropped_request_count_total{partition="broker-0"}': "0+60x100",
    },
    "WeirConcurrencyLocal": {'weir_concurrency_local{partition="broker-0"}': ON},
    "WeirSlotsExpired": {'weir_concurrency_slots_expired_total{partition="broker-0"}': GROWS},
    "WeirBacklogNearQuota": {'weir_backlog_quota_used_ratio{topic="t",quota_type="size"}': "0.9x100"},
    "WeirBacklogOverQuota": {'weir_backlog_quota_used_ratio{topic="t",quota_type="size"}': "1.5x100"},
    "WeirProducersBlocked": {'weir_producer_blocks{quota_type="size",policy="producer_exception"}': ON},
    "WeirBlocksStale": {'weir_producer_block_stale_total{outcome="open"}': "0x60 1x40"},
    "WeirBlocksNotLogged": {'weir_producer_block_actions_total{step="begun",result="failed"}': "0x60 1x40"},
    "WeirBacklogChecksFail": {'weir_backlog_rounds_total{result="unread"}': GROWS},
    "WeirBacklogChecksSlow": {"weir_backlog_behind_total": GROWS},
    "WeirBacklogTopicsUnread": {"weir_backlog_unread_topics": ON},
    "WeirEvictionsFail": {'weir_backlog_evictions_total{quota_type="size",outcome="failed"}': "0x60 1x40"},
    "WeirEvictionsUnsettled": {"weir_backlog_unsettled_evictions": ON},
    "WeirEvictionsRefused": {'weir_backlog_dropped_decisions_total{reason="unlike"}': GROWS},
    "WeirPublishWaits": {
        'weir_publish_wait_seconds_bucket{le="20.0"}': OFF,
        'weir_publish_wait_seconds_bucket{le="30.0"}': GROWS,
        'weir_publish_wait_seconds_bucket{le="+Inf"}': GROWS,
    },
    "WeirMessagesLost": {"weir_consumer_lost_messages_total": GROWS},
    "WeirCollectRoundsFail": {'weir_collect_rounds_total{result="unreported"}': GROWS},
    "WeirCollectRoundsFail too": {'weir_collect_rounds_total{result="first"}': GROWS},
    "WeirCollectBehind": {"weir_collect_behind_total": GROWS},
    "WeirCollectUnmetered": {"weir_collect_unknown_places_total": GROWS},
    "WeirPushesFail": {'weir_collect_pushes_total{kind="publishRate",result="refused"}': GROWS},
    "WeirForeignLimits": {"weir_collect_foreign_limits": ON},
    "WeirEntityNear": {'weir_entity_used_ratio{law="mutation",entity="user=a"}': "0.81x100"},
    "WeirEntityThrottled": {'weir_entity_throttled_seconds{law="mutation",entity="user=a"}': "0+60x100"},
    "WeirEntityEmpty": {'weir_entity_empty_seconds{law="backlog",entity="t"}': "599x100"},
    "WeirAdminChangesFail": {'weir_admin_changes_total{result="failed"}': "0x60 1x40"},
    "WeirAdminOvertaken": {'weir_admin_changes_total{result="overtaken"}': HIGH},
    "WeirAdminErrors": {'weir_admin_requests_total{route="/x",method="GET",code="503"}': HIGH},
    "WeirAdminRoom": {"weir_admin_usage_rows_dropped_total": GROWS},
    "WeirHttpUpstreamFails": {'weir_http_upstream_failures_total{reason="timeout"}': GROWS},
}

BESIDE: Final = {"WeirBacklogOverQuota": ["WeirBacklogNearQuota"]}
"""Beyond the quota is near the quota too: those that never fire alone, and the others."""

HEALTHY: Final = {
    'up{job="weir-proxy",part="proxy"}': ON,
    'up{job="weir"}': ON,
    'weir_part_up{part="job"}': ON,
    "weir_proxy_loop_delay_seconds_count": HIGH,
    'weir_proxy_events_total{result="sent"}': HIGH,
    'weir_proxy_events_total{result="dropped"}': OFF,
    'weir_proxy_corrected_mutations_total{kind="refunded"}': GROWS,
    'weir_local_differences_total{subject="user=alice"}': GROWS,
    "weir_job_decisions_total": HIGH,
    "weir_job_last_batch_number": GROWS,
    'weir_job_source_lag_records{topic="weir.requests"}': "0x50 900x3 0x47",
    'weir_job_decision_age_seconds_bucket{le="0.5"}': GROWS,
    'weir_job_decision_age_seconds_bucket{le="+Inf"}': GROWS,
    "weir_job_restarts_total": "4x20 5x20 6x60",
    "weir_job_brokers_clock_ahead_seconds": "-0.2x50 2x3 0x47",
    "weir_proxy_connections": "50x100",
    "weir_proxy_connections_max": "100x100",
    'weir_group_state{group="g",state="active"}': ON,
    'weir_group_unmet_ratio{group="g",dimension="publishRateInMsgs"}': "0.3x100",
    'weir_group_fairness_ratio{group="g",dimension="publishRateInMsgs"}': "0.9x100",
    'weir_concurrency_limit{partition="broker-0"}': "20x100",
    'zeebe_received_request_count_total{partition="broker-0"}': HIGH,
    'zeebe_dropped_request_count_total{partition="broker-0"}': "0+6x100",
    'weir_backlog_quota_used_ratio{topic="t",quota_type="size"}': "0.5x100",
    'weir_backlog_rounds_total{result="done"}': GROWS,
    'weir_backlog_rounds_total{result="unread"}': "0x60 1x40",
    # It has just been started.
    'weir_collect_rounds_total{result="first"}': "0x60 1x40",
    # Below 0.8 it is not told.
    'weir_entity_used_ratio{law="mutation",entity="user=a"}': " ".join(["0.99x2 stale _"] * 25),
    'weir_entity_throttled_seconds{law="mutation",entity="user=a"}': "0x50 61 0x49",
    'weir_entity_empty_seconds{law="backlog",entity="t"}': "601x100",
    'weir_admin_changes_total{result="overtaken"}': "0+1x100",
    'weir_admin_requests_total{route="/x",method="GET",code="200"}': HIGH,
}
"""What no alert may fire on, single slips among it."""
