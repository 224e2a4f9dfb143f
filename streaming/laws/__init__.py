"""The laws: pure functions of policy, state and events. `LAWS` names them; adding one is adding a line."""

from streaming.laws.mutation_table import MutationTable

LAWS = {"mutation": MutationTable}
LAW_OF_TYPE = {"request": "mutation", "refund": "mutation"}
"""Which law decides an event, by the event's `type`; a `policy` goes to all."""
