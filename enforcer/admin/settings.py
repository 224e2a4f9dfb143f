"""Settings of the admin API (section `admin:` of weir.yaml), declared once and frozen."""

from streaming.policy.settings import Settings, setting


class AdminSettings(Settings):
    """Settings of one admin API process; every wait, queue and table of it has its bound here."""

    tokens_file: str = setting(
        "", "file with tokens and their roles, see docs/admin_api.md; empty: none; --tokens wins over it"
    )
    tokens_env: str = setting(
        "WEIR_ADMIN_TOKENS", "environment variable that may hold ROLE:TOKEN[,ROLE:TOKEN...], beside the file"
    )
    change_timeout_ms: int = setting(
        10_000, "limit for a change to be written and read back, then 503, ms", minimum=100
    )
    changes_max: int = setting(100, "changes waiting for their turn; further ones get 503", minimum=1)
    body_max_bytes: int = setting(65_536, "largest body of a request; a larger one gets 413", minimum=1_024)
    body_timeout_ms: int = setting(5_000, "limit for a body to arrive, then 408, ms", minimum=100)
    requests_max: int = setting(200, "requests at a time; further ones get 503", minimum=1)
    connections_max: int = setting(
        1_000, "connections, idle ones too; further ones get 503 without a reason", minimum=1
    )
    idle_timeout_s: int = setting(15, "an idle connection is closed after it, s", minimum=1)
    usage_rows_max: int = setting(
        100_000, "pairs of group and broker whose use is kept; those silent longest go first", minimum=1
    )
    stop_timeout_s: int = setting(2, "limit for answering what is under way at a stop, s", minimum=0)
