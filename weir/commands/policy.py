"""`weir policy`: check, explain, apply, mode, get and log (docs/contract.md 4)."""

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from streaming.contract.errors import BadEvent
from streaming.contract.events import ANONYMOUS, REASON_MAX
from streaming.contract.printable import printable, printable_json
from streaming.policy.files import check_entry, load_policies, policy_file
from streaming.policy.policy_set import Mode, PolicySet, Section, parse_path, raised_until, refill_times
from weir.foreground import interruptible
from weir.logs.times import BEGINNING_MS, EXPECTED, moment, wall_ms
from weir.options import add, add_cluster_options, add_flag, cluster_of, time_argument, topic_argument
from weir.policy_explain import explain_topic, explain_user

if TYPE_CHECKING:
    from streaming.kafka_io.policy_topic import PolicyLog

# Entries of these origins come from a file, so the next file may remove them.
FILE_ORIGINS = ("file", "apply")
_SLOW_S: Final = 3_600.0
_SHOWN_MAX: Final = 10
"""Raises that `check` tells of."""
_ORIGIN_REMARKS = {
    "kafka": "read from the cluster",
    "admin": "set by the admin API",
    "mode": "set by `weir policy mode`",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    checked = commands.add_parser("check", help="find every mistake in a policy file")
    checked.add_argument("file", metavar="FILE")
    checked.set_defaults(run=check)

    explained = commands.add_parser("explain", help="say which limits apply to a client or topic, and why")
    add(explained, "--policies", "the file", metavar="FILE", required=True)
    user = f"default {ANONYMOUS}, as without authentication"
    add(explained, "--user", user, metavar="NAME")
    add(explained, "--client-id", "default empty", metavar="NAME")
    topic = "such as persistent://acme/orders/t1"
    add(explained, "--topic", topic, metavar="NAME", type=topic_argument)
    add(explained, "--subscription", "a subscription of --topic", metavar="NAME")
    explained.set_defaults(run=explain, usage_error=explained.error)

    applied = commands.add_parser("apply", help="publish a policy file to a running system")
    applied.add_argument("file", metavar="FILE")
    add(applied, "--reason", "why, for `weir policy log`", metavar="TEXT", default="", type=_reason)
    add_cluster_options(applied)
    applied.set_defaults(run=apply)

    switched = commands.add_parser("mode", help="enforce all policies, only track them, or switch them off")
    modes = "enforce; track: decide and charge, and let all pass; off: neither"
    switched.add_argument("mode", metavar="MODE", choices=[each.value for each in Mode], help=modes)
    add(switched, "--reason", "why, for `weir policy log`", metavar="TEXT", default="", type=_reason)
    add_cluster_options(switched)
    switched.set_defaults(run=mode)

    got = commands.add_parser("get", help="print the policies in force as a policy file")
    add_cluster_options(got)
    got.set_defaults(run=get)

    logged = commands.add_parser("log", help="say who has changed which policy, from what to what, and why")
    add(logged, "--entry", "one entry only, such as quotas[user=alice]", metavar="PATH", type=_entry)
    start = {"metavar": "TIME", "type": time_argument, "dest": "start", "default": BEGINNING_MS}
    add(logged, "--from", f"{EXPECTED} (default beginning)", **start)
    add_flag(logged, "--json", "an object for each change")
    add_cluster_options(logged)
    logged.set_defaults(run=log)


def check(args: argparse.Namespace) -> int:
    """Check a file; raises ConfigError with every problem."""
    entries = load_policies(args.file)
    _warn_of_slow(args.file, entries)
    counts = Counter(parse_path(path).section for path in entries)
    found = ", ".join(f"{counts[section]} in {section}" for section in Section if counts[section])
    print(printable(f"{args.file}: no problems; entries: {found or 'none'}"))
    raises = list(_raises(entries, wall_ms()))
    for raised in raises[:_SHOWN_MAX]:
        print(printable(f"{args.file}: {raised}"))
    if len(raises) > _SHOWN_MAX:
        print(printable(f"{args.file}: and {len(raises) - _SHOWN_MAX} more"))
    return 0


def explain(args: argparse.Namespace) -> int:
    """Say which limit applies and why; raises ConfigError if the file is wrong."""
    if args.topic is None:
        if args.subscription is not None:
            args.usage_error("--subscription needs --topic")
        if args.user is None and args.client_id is None:
            args.usage_error("one of --user, --client-id, --topic is required")
    elif args.user is not None or args.client_id is not None:
        args.usage_error("--topic does not go together with --user or --client-id")
    policies = PolicySet(load_policies(args.policies), at=wall_ms())
    file = shlex.quote(args.policies)
    if args.topic is None:
        user = ANONYMOUS if args.user is None else args.user
        lines = explain_user(policies, user, args.client_id or "", file)
    else:
        lines = explain_topic(policies, args.topic, args.subscription, file)
    print("\n".join(map(printable, lines)))
    return 0


def apply(args: argparse.Namespace) -> int:
    """Publish what differs between a file and the policies in force.

    Raises:
        ConfigError: the file or the settings are wrong; nothing was published.
        WeirError: the cluster did not answer in time or has no policy topic.
    """
    # Here and not above: `weir policy check` must not load a Kafka client.
    from streaming.kafka_io.policy_topic import differences
    from streaming.kafka_io.policy_turn import change_policies
    from weir.logs.policy_log import actor_here

    wanted = load_policies(args.file)
    _warn_of_slow(args.file, wanted)
    written = interruptible(lambda: change_policies(
        cluster_of(args), lambda log: differences(log, wanted, FILE_ORIGINS, override=True),
        origin="apply", actor=actor_here("file"), reason=args.reason,
    ))  # fmt: skip
    before, updates = written.before, written.updates
    owners = written.log.origins
    kept = [path for path in before if path not in wanted and owners.get(path, "file") not in FILE_ORIGINS]
    for path in kept:
        print(printable(f"left   {path} (not set by a file)"))
    if not updates:
        print(printable(f"no difference: version {written.version} is what {args.file} says"))
        return 0
    for update in updates:
        verb = "remove" if update.value is None else "change" if update.path in before else "add   "
        print(printable(f"{verb} {update.path}"))
    print(f"version {written.version}, in force from {moment(written.effective_ts)}")
    return 0


def mode(args: argparse.Namespace) -> int:
    """Publish the mode of all policies; raises WeirError if the cluster has none or does not answer."""
    from streaming.kafka_io.policy_topic import Update
    from streaming.kafka_io.policy_turn import change_policies
    from weir.logs.policy_log import actor_here

    wanted = Update(path=Section.MODE.value, value=args.mode)
    written = interruptible(lambda: change_policies(
        cluster_of(args),
        lambda log: [] if log.entries.get(Section.MODE, Mode.ENFORCE) == args.mode else [wanted],
        # Not a file's: the next one that says nothing of it leaves it alone.
        origin="mode", actor=actor_here("mode"), reason=args.reason,
    ))  # fmt: skip
    in_force = f", in force from {moment(written.effective_ts)}" if written.updates else " already"
    print(f"mode {args.mode}: version {written.version}{in_force}")
    return 0


def get(args: argparse.Namespace) -> int:
    """Print the policies in force; raises WeirError if the cluster has none or does not answer."""
    from streaming.kafka_io.policy_topic import read_policies

    cluster = cluster_of(args)
    log = interruptible(partial(read_policies, cluster))
    remarks = _remarks(log, cluster.topics.policies, cluster.bootstrap, wall_ms())
    print("\n".join(map(printable, remarks)))
    print(policy_file(log.entries), end="")
    return 0


def log(args: argparse.Namespace) -> int:
    """Print the changes of policies; raises WeirError if the cluster has none or does not answer."""
    from streaming.kafka_io.policy_topic import read_policies, rows
    from weir.logs.policy_log import line

    found = interruptible(partial(read_policies, cluster_of(args), told_max=sys.maxsize))
    for remark in _bad_records(found):
        print(printable(remark), file=sys.stderr)
    for row in rows(found, args.entry, args.start):
        if args.json:
            print(printable_json(orjson.dumps(row).decode()))
        else:
            print(line(row, moment(row["at"])))
    return 0


def _warn_of_slow(file: str, entries: Mapping[str, Any]) -> None:
    """Say of quotas what a new proxy does not know of them (docs/laws.md, Several proxies)."""
    slow = {path: seconds for path, seconds in refill_times(entries) if seconds > _SLOW_S}
    if slow:
        longest = max(slow, key=slow.__getitem__)
        others = f", and {len(slow) - 1} more" if len(slow) > 1 else ""
        said = f"{file}: warning: {longest}: its burst takes {slow[longest] / _SLOW_S:.3g} h to fill{others}"
        print(printable(f"{said}; a proxy that starts reads ten minutes back"), file=sys.stderr)


def _remarks(log: "PolicyLog", topic: str, bootstrap: str, now_ms: int) -> list[str]:
    """Comments above the printed file: what a policy file can't say."""
    remarks = [f"# version {log.newest_version} of {topic} on {bootstrap}"]
    for path, effective_ts in log.effective.items():
        if effective_ts > now_ms:
            remarks.append(f"# changed, in force from {moment(effective_ts)}: {path}")
    for path in log.entries:
        remark = _ORIGIN_REMARKS.get(log.origins.get(path, ""))
        remarks += [f"# {remark}: {path}"] if remark else []
    remarks += [f"# {raised}" for raised in _raises(log.entries, now_ms)]
    return remarks + _bad_records(log)


def _raises(entries: Mapping[str, Any], now_ms: int) -> Iterator[str]:
    """Until when entries are raised."""
    for path, value in entries.items():
        until = raised_until(value)
        if until is not None:
            yield f"{'raised until' if now_ms < until else 'raised no more since'} {moment(until)}: {path}"


def _bad_records(log: "PolicyLog") -> list[str]:
    if not log.bad_records:
        return []
    return [f"# {log.bad_records} records could not be used, such as: {log.last_bad!r}"]


def _entry(text: str) -> str:
    """The path of an entry on the command line."""
    try:
        check_entry(text, None)
    except BadEvent as bad:
        raise argparse.ArgumentTypeError(bad.reason) from bad
    return text


def _reason(text: str) -> str:
    """A reason on the command line, as the admin API reads one."""
    if len(text) > REASON_MAX:
        raise argparse.ArgumentTypeError(f"has {len(text)} characters; expected at most {REASON_MAX}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("is not UTF-8; expected text in UTF-8") from None
    return text.strip()
