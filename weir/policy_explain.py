"""What `weir policy explain` says: which limit applies, the search that found it, and how to change it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from streaming.contract.names import namespace_of
from streaming.laws.backlog.law import EVICTION
from streaming.policy.policy_set import (
    RAISE,
    UNLIMITED,
    UNTIL,
    Algorithm,
    Decide,
    Mode,
    MutationQuota,
    PolicySet,
    Section,
    candidates,
    mutation_quota_at,
    raised_until,
)
from streaming.policy.schema import MUTATION_RATE, sampled_windows
from streaming.policy.topics import (
    LEVELS,
    BacklogKind,
    Candidate,
    RateKind,
    backlog_candidates,
    dispatch_candidates,
    resource_group,
)
from streaming.policy.yaml.text import rendered

USER_LEVEL = 3
_PATH_WIDTH = 48
_SHADOW: Final = "The job decides and counts, and nothing is held back: the entry is a shadow."
_MODES: Final = {
    Mode.TRACK: "The mode is track: all is decided and counted, and nothing is held back.",
    Mode.OFF: "The mode is off: no entry is in force.",
}
_WHERE: Final[Mapping[str | None, str]] = {
    Decide.LOCAL: "The proxy that is asked decides at once, as far as its part of the balance reaches.",
    Decide.STRICT: "The job decides: a request waits for it.",
    None: "The setting proxy.decide of a proxy says where it is decided, since the entry has no key decide.",
}


def explain_user(policies: PolicySet, user: str, client_id: str, file: str) -> list[str]:
    """The mutation quota of a client, in lines; the first begins with `level N: `, N = 0 for no quota."""
    quota = policies.mutation_quota(user, client_id)
    nothing = f"level 0: no quota applies to user {user!r} with client-id {client_id!r}"
    lines = [_quota_line(quota) if quota else nothing, *_for_now(policies, [quota.path] if quota else [])]
    lines += ["", "Why: the first of eight levels that sets a mutation rate applies."]
    for candidate in candidates(user, client_id):
        value = policies.entries.get(candidate.path)
        if value is None:
            found = "no entry"
        elif mutation_quota_at(candidate, value) is None:
            found = f"entry without a {MUTATION_RATE}, passed over"
            if value.get(MUTATION_RATE) == UNLIMITED:
                found = f"entry with {MUTATION_RATE} {UNLIMITED}, passed over"
        # It has a rate, but a lower number had one too.
        elif quota is not None and candidate.level > quota.level:
            found = f"entry, not reached: level {quota.level} comes first"
        else:
            found = "matched"
        lines.append(f"  {candidate.level}  {candidate.path:<{_PATH_WIDTH}}  {found}")
    lines += ["", *_what_it_means(quota), "", "What to do next:"]
    return [*lines, *_next_steps(quota, user, client_id, file)]


def explain_topic(policies: PolicySet, topic: str, subscription: str | None, file: str) -> list[str]:
    """All limits of a topic, in lines; the first names the dispatch rate that applies closest to the reader.

    Raises:
        BadEvent: not a full topic name.
    """
    # The limiter that the question is about, the nearest to the consumer.
    kind = RateKind.TOPIC if subscription is None else RateKind.SUBSCRIPTION
    of = f"{topic}" if subscription is None else f"subscription {subscription!r} of {topic}"
    winner = next(
        (each for each in dispatch_candidates(policies, topic, subscription, kind) if each.wins), None
    )
    lines = [f"level 0: no dispatch rate applies to {of}"]
    if winner is not None and winner.value is not None:
        level = LEVELS.index(winner.level) + 1
        lines = [f"level {level}: {winner.path}: {_dispatch(winner.value)} for {of}"]
    namespace = f"{Section.NAMESPACES}.{namespace_of(topic)}"
    group = [f"{Section.RESOURCE_GROUPS}.{found[0]}"] if (found := resource_group(policies, topic)) else []
    lines += _for_now(policies, [f"{Section.TOPICS}.{topic}", namespace, Section.BROKER, *group])
    lines += ["", *_group_lines(policies, topic)]
    titles = {
        RateKind.TOPIC: "the topic, all subscriptions together",
        RateKind.SUBSCRIPTION: "one subscription",
    }
    for rate_kind, title in titles.items():
        levels = list(dispatch_candidates(policies, topic, subscription, rate_kind))
        lines += ["", f"Dispatch rate of {title}; the first that sets a rate applies as a whole:"]
        lines += _searched(levels, _dispatch)
    for backlog_kind in BacklogKind:
        levels = list(backlog_candidates(policies, topic, backlog_kind))
        lines += ["", f"Backlog quota {backlog_kind}; the first with a limit applies:"]
        lines += _searched(levels, _backlog)
    broker = policies.entries.get("broker", {})
    return [
        *lines, "", f"The broker as a whole: {_dispatch(broker)}, beside the limits above.",
        "", "What to do next:",
        f"  set the key at the level that shall decide, in {file}, and check it: weir policy check {file}",
        f"  make it live: weir policy apply {file} --kafka HOST:PORT",
    ]  # fmt: skip


def _for_now(policies: PolicySet, paths: Iterable[str]) -> Iterator[str]:
    """What else decides what these entries come to: the mode, and raises that have not ended."""
    mode = policies.written.get(Section.MODE)
    if mode in _MODES:
        yield _MODES[mode]
    for path in paths:
        value = policies.written.get(path, {})
        until = raised_until(value)
        if until is not None and policies.at < until:
            yield f"{path} is raised until {value[RAISE][UNTIL]}."


def _quota_line(quota: MutationQuota) -> str:
    entity = quota.path.removeprefix("quotas[").removesuffix("]")
    # A default is charged to each client on its own: say to whom.
    charged = "" if entity == quota.subject else f" (charged to {quota.subject})"
    shadow = ", shadow: not enforced" if quota.shadow else ""
    rate, burst = _number(quota.rate), _number(quota.burst)
    return f"level {quota.level}: {entity}{charged}: rate {rate}/s, burst {burst}, {quota.algorithm}{shadow}"


def _what_it_means(quota: MutationQuota | None) -> list[str]:
    if quota is None:
        return ["Requests of this client are counted and let through."]
    if quota.algorithm == Algorithm.SAMPLED_RATE:
        windows = sampled_windows(quota.rate, quota.burst)
        meaning = f"Partition mutations are averaged over {windows} windows of one second."
        where = "The job decides, as always with this algorithm: a request waits for it."
    else:
        meaning = (
            f"{_number(quota.burst)} partition mutations may be done at once; after that "
            f"{_number(quota.rate)} more come free each second."
        )
        where = _WHERE[quota.decide]
    user, client_id = "user=" in quota.subject, "client-id=" in quota.subject
    if user and client_id:
        shared = "This user's clients of this client-id share them."
    else:
        shared = (
            "All client-ids of this user share them." if user else "All users of this client-id share them."
        )
    charged = f"They are charged to {quota.subject}. {shared}"
    return [meaning, charged, _SHADOW if quota.shadow else where]


def _next_steps(quota: MutationQuota | None, user: str, client_id: str, file: str) -> Iterator[str]:
    """How to change what applies; only entries that would come first are proposed."""
    # Behind the last level, if nothing applies: then every entry would come first.
    level = quota.level if quota else len(tuple(candidates(user, client_id))) + 1
    if quota is not None:
        yield f"  change it: edit {quota.path} in {file}"
    if level > USER_LEVEL:
        yield f"  a limit for this user alone: add {_entry({'user': user})}"
    if level > 1:
        both = _entry({"user": user, "client-id": client_id})
        yield f"  a limit for this user with this client-id: add {both}"
    yield f"  check the file: weir policy check {file}"
    yield f"  make it live: weir policy apply {file} --kafka HOST:PORT"


def _entry(entity: Mapping[str, str]) -> str:
    return f"- {{entity: {rendered(dict(entity))}, {MUTATION_RATE}: RATE}}"


def _group_lines(policies: PolicySet, topic: str) -> list[str]:
    found = resource_group(policies, topic)
    if found is None:
        return ["Resource group: none, neither in its namespace nor in its tenant."]
    group, path = found
    limits = policies.entries.get(f"{Section.RESOURCE_GROUPS}.{group}", {})
    return [f"Resource group: {group} by {path}: {rendered(limits)}"]


def _searched(levels: list[Candidate], described: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """One line a level: what was found, and which one wins."""
    lines, over = [], False
    for candidate in levels:
        if candidate.value is None:
            found = "no entry"
        elif not candidate.wins:
            found = "sets no limit, passed over"
        else:
            found = f"{described(candidate.value)}: {'not reached' if over else 'applies'}"
        over = over or candidate.wins
        lines.append(f"  {LEVELS.index(candidate.level) + 1}  {candidate.path:<{_PATH_WIDTH}}  {found}")
    return lines if over else [*lines, "  none applies: not limited"]


def _dispatch(rate: Mapping[str, Any]) -> str:
    """A dispatch rate in words."""
    units = (("dispatchThrottlingRateInMsg", "messages"), ("dispatchThrottlingRateInByte", "bytes"))
    limits = [f"{rate[key]} {unit}" for key, unit in units if rate.get(key, UNLIMITED) != UNLIMITED]
    if not limits:
        return "not limited"
    period = rate.get("ratePeriodInSecond", 1)
    whose = ", all brokers together," if rate.get("across_brokers", False) else ""
    return f"{' and '.join(limits)} per {f'{period} s' if period != 1 else 'second'}{whose}"


def _backlog(quota: Mapping[str, Any]) -> str:
    limit = f"{quota['limitSize']} bytes" if "limitSize" in quota else f"{quota['limitTime']} s"
    words = [limit, quota["policy"], _flag(quota, "actions")]
    if quota["policy"] == EVICTION:
        words.append(_flag(quota, "allow_delete_records"))
    return ", ".join(words)


def _flag(quota: Mapping[str, Any], key: str) -> str:
    # The broker's defaults have no such key, and are never acted on.
    return f"{key}: {'true' if quota.get(key, False) else 'false'}"


def _number(value: float) -> str:
    """Without a needless `.0`, and without the last bits of 11 x 0.7."""
    return f"{value:.12g}"
