"""The stack in the foreground, as `weir up` and `weir demo` run it: from the options to the clean stop."""

import argparse
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from enforcer.host.doors.certificates import WatchedContext
from enforcer.host.doors.listening import listen_at
from streaming.contract.errors import ConfigError, Problem, WeirError
from streaming.policy.files import load_policies
from streaming.policy.settings import read_settings
from weir.foreground import StopSignal, forget_ready_file, write_ready_file
from weir.log import teller
from weir.options import check_client
from weir.settings_file import SECTIONS
from weir.stack.local import POLL_S, Stack
from weir.stack.scrape import MetricsServer

_SCRAPE_S: Final = 1.0
"""Limit of one part's answer to a metrics request."""
_FORCED = 1
_say = teller("weir")


def serve(
    args: argparse.Namespace, policies: str | None, *,
    meanwhile: Callable[[Stack, StopSignal], bool] = lambda stack, stop: False,
) -> int:  # fmt: skip
    """Start the stack, say that it is ready, watch it until a signal, stop it.

    Args:
        args: options of `weir.commands.up.add_stack_options`.
        policies: file to publish first.
        meanwhile: called once when all is ready; returns True to stop then.

    Returns:
        0: stopped as asked.

    Raises:
        ConfigError: a policy or settings file is wrong; nothing was started.
        WeirError: a part failed; all others were stopped.
    """
    entries, settings = None if policies is None else load_policies(policies), _settings(args.settings)
    stack: Stack | None = None

    def force() -> None:
        if stack is not None:
            stack.kill()
        os._exit(_FORCED)

    stop = StopSignal(force).install()
    stack = Stack(args, entries, settings, stop, _say)
    with ExitStack() as held:
        # Whatever fails: who is not stopped is killed with us.
        held.callback(stack.stop)
        stack.take_data_dir()
        _check_port(args.listen, "--listen")
        _check_port(args.admin, "--admin")
        if args.pulsar:
            _check_port(args.pulsar_listen, "--pulsar-listen")
        own = settings["proxy"].tls
        tls = None if own is None else WatchedContext.of_metrics(own)
        server = MetricsServer(args.metrics, stack.metrics_sources, _SCRAPE_S, tls)
        held.callback(server.stop)
        # Not before: it may be that of another one, which goes on.
        forget_ready_file(args.ready_file)
        if args.ready_file:
            held.callback(args.ready_file.unlink, missing_ok=True)
        held.callback(_tell, stop)
        if stack.start():
            _announce(stack, server, args, pulsar_tls=settings["pulsar"].tls is not None)
            ended = meanwhile(stack, stop)
            while not ended and not stop.wait(POLL_S):
                if stack.look() and all(part.ready for part in stack.parts):
                    write_ready_file(args.ready_file, {**stack.addresses(), "metrics": server.url}, _say)
    _say("stopped")
    return 0


def _tell(stop: StopSignal) -> None:
    if stop.asked:
        _say("stopping (a second Ctrl-C kills) ...")


def _announce(stack: Stack, server: MetricsServer, args: argparse.Namespace, *, pulsar_tls: bool) -> None:
    content = {**stack.addresses(), "metrics": server.url}
    write_ready_file(args.ready_file, content)
    proxy, kafka = content["proxy"], content["kafka"]
    there = reached(kafka, args.settings)
    print(f"weir is ready: clients connect to {proxy}, Kafka is {kafka}, metrics {content['metrics']}")
    if service := content.get("pulsar_proxy"):
        scheme = "pulsar+ssl" if pulsar_tls else "pulsar"
        print(f"  Pulsar clients          {scheme}://{service}, Pulsar itself is {content['pulsar']}")
    if upstream := content.get("pulsar_admin"):
        print(f"  pulsar-admin            --admin-url {content['admin']}, which is in front of {upstream}")
    print(f"  who waits, and why      {content['admin']}/ in a browser; weir top {there}")
    print(f"  watch the decisions     weir tail {there}")
    print(f"  see backlogs            weir backlog --watch {there}")
    print(f"  see or change policies  weir policy get {there}; weir policy apply FILE {there}")
    print(f"  or as REST, on a page   {content['admin']}/docs (without tokens from this machine only)")
    print(f"  try it                  kafka-topics --bootstrap-server {proxy} --create --topic t1")
    print("  stop                    Ctrl-C", flush=True)


def reached(kafka: object, settings: str | None) -> str:
    """The options of a command that goes there, also with the login that stands in the settings."""
    return f"--kafka {kafka}" + (f" --settings {shlex.quote(settings)}" if settings else "")


def _settings(file: str | None) -> dict[str, Any]:
    """Every section, those of the parts too: a mistake in them must not show only after Kafka has started.

    Raises:
        ConfigError: the problems of all sections together.
    """
    read: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, cls in SECTIONS:
        try:
            read[name] = read_settings(cls, name, file)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(sorted(set(problems), key=lambda problem: problem.line))
    for part in ("", *read["kafka"].parts):
        check_client(read["kafka"].client_of(part), file, part)
    return read


def _check_port(address: tuple[str, int], option: str) -> None:
    if address[1]:
        try:
            listen_at(address).close()
        except WeirError as error:
            raise WeirError(f"{error}; choose another address with {option}") from error
