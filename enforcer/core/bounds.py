"""Bounds that several rooms of a proxy share; all of them lie within `proxy.memory_mb`."""

from typing import Final

MUTE_SPLIT_MS: Final = 25_000
"""A muted connection may send one request after each such time: clients give up after 30 s without a word,
and the broker needs some of them."""
HELD_FRAMES_MAX: Final = 256
"""Requests of one connection kept while an earlier one waits; fifty times what Kafka's clients have in
flight."""
HELD_BYTES_MAX: Final = 1_048_576
"""The same in bytes."""
INFLIGHT_MAX: Final = 1_000
"""Requests of one connection without an answer, two hundred times what Kafka's clients have; then reading
stops."""
MAX_ADMIN_FRAME_BYTES: Final = 2_097_152
"""Largest request that is read whole and is no metered data, such as CreateTopics: 2,000 topics with
settings fit."""
MAX_UNAUTHENTICATED_FRAME_BYTES: Final = 524_288
"""The same for requests that need no login; brokers have the same (sasl.server.max.receive.size)."""
PARTIAL_FRAME_TIMEOUT_MS: Final = 120_000
"""A request must be complete so long after its first byte: one of 100 MiB at 7 Mbit/s is."""
WRITE_BUFFER_HIGH_BYTES: Final = 1_048_576
"""Bytes waiting to be written on one socket; above it the other side is not read."""
WRITE_BUFFER_LOW_BYTES: Final = 262_144
"""Below it reading goes on: a quarter, so that a slow reader does not stop and start it for each frame."""
GATHERED_BYTES: Final = 48 << 20
"""Produce requests above 1 MiB that must be whole, all together: a tenth of memory_mb."""
DEPARTED_MAX_MS: Final = 30_000
"""What a client sent is carried out so long after it has gone: as long as clients wait (30 s)."""
DESCRIPTORS_RESERVE: Final = 256
"""File descriptors kept beside those of clients, for files, logs and the proxy's own connections to Kafka."""
PENDING_REQUESTS_MAX: Final = 10_000
"""Requests waiting for their decision, one for each connection that may be; further ones wait in them."""
OPEN_QUESTIONS_MAX: Final = 100
"""The same of one quota's subject: a hundredth, so that one subject leaves room for others."""
TOPICS_MAX: Final = 100_000
"""Topics whose group, and topic ids whose name, is known at a time."""
SLOT_DEADLINE_MS: Final = 30_000
"""After so long a request in flight has no slot any more: clients wait no longer for its answer (30 s)."""
POLICIES_MORE_MS: Final = 60_000
"""Clients that need Kafka too wait for the policies so much longer: then they are better off without."""
BROKERS_MAX: Final = 512
"""Brokers of the cluster; each takes a port of the proxy's."""
PACK_MIN: Final = 16
"""Groups of a report, or what else is told together, from which on a packed record is smaller than JSON."""
BRAIN_AWAY_MS: Final = 5_000
"""A limit is learned here while nothing is heard of the job for so long after samples; it answers within a
second."""
