"""Several proxies hold one quota together: real job, one to three `weir proxy`, a client in a hurry at each.

What was measured is printed. What they admit above the law and the long-run rate are taken from
`weir.decisions`. The bound and its derivation are in docs/laws.md, "Several proxies", where the same is
simulated for eight.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from cluster_kit import fresh
from company_kit import Admitted, Client, Company, Modest, Offender, bound, let_in, most_above
from exam_kit import Say
from stack_kit import until

pytestmark = pytest.mark.soak
RATE, BURST = 2.0, 22.0
SETTLED_S = 15.0
"""After so long the burst is spent, on a machine that is busy with other things too."""
WINDOW_S = 240.0
"""The long-run rate is looked at over so long: 480 mutations, of which 1 % are more than what is in doubt."""
DISTURBED_S = 60.0
AFTER_S = 20.0
STILL_S = 8.0
NAMES = ("one", "two", "three")


class Asked:
    """Clients of one subject in a hurry, modest ones of another, and what became of them.

    Made before the proxies start, so that they know the quotas when they let clients in.
    """

    def __init__(self, company: Company, say: Say) -> None:
        self.company, self._say = company, say
        self.name = fresh("hurry")
        self.subject = company.limit(self.name, RATE, BURST)
        self.modest_subject = company.limit(f"{self.name}-modest", RATE, BURST)
        self.clients: list[Client] = []
        self.modest: list[Client] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A client in a hurry at each proxy, beside it a modest one, and one at the broker itself."""
        proxies = self.company.proxies
        # Three quarters of the rate, all of them together.
        every_s = len(proxies) / (0.75 * RATE)
        with ExitStack() as running:
            for name, proxy in proxies.items():
                modest = Modest(name, f"{self.name}-modest", proxy.bootstrap, every_s)
                self.modest.append(running.enter_context(modest))
                self.clients.append(running.enter_context(Offender(name, self.name, proxy.bootstrap)))
            straight = Modest("broker", f"{self.name}-straight", self.company.kafka.bootstrap, every_s)
            running.enter_context(straight)
            yield
        for client in (*self.clients, *self.modest, straight):
            self._say(client.figures())

    def admitted(self) -> list[Admitted]:
        """What the topic says of the subject, once all that clients were told of is there."""
        told = sum(len(client.admitted) for client in self.clients)
        until(
            lambda: sum(one.mutations for one in self.company.admitted(self.subject)) >= told,
            what=f"decisions of all {told} that were admitted",
            limit_s=60,
        )
        return self.company.admitted(self.subject)

    def seen(self) -> list[Admitted]:
        """What the clients were told, by the time of the answers."""
        every = [one for client in self.clients for one in client.admitted]
        return sorted(every, key=lambda one: one.at)

    def said_at_once(self) -> tuple[int, int]:
        """Requests of the modest clients, and how many of them were decided where they were asked."""
        events = self.company.requests(self.modest_subject)
        return len(events), sum("decided" in event for event in events)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_long_run_rate_is_exact(company: Company, say: Say, count: int) -> None:
    """Within 1 % of the rate, never more above it than the bound, and the modest ones at once."""
    asked = Asked(company, say)
    company.only(*NAMES[:count])
    with asked.asking():
        time.sleep(SETTLED_S + WINDOW_S + 5)
    made = asked.admitted()
    from_ms = made[0].at + round(1000 * SETTLED_S)
    rate = let_in(made, from_ms, from_ms + round(1000 * WINDOW_S)) / WINDOW_S
    above, seen = most_above(made, RATE, BURST), most_above(asked.seen(), RATE, BURST)
    say(f"{count} proxies: {rate:.4f} a second over {WINDOW_S:.0f} s; {above:.2f} above, answers {seen:.2f}")
    assert rate == pytest.approx(RATE, rel=0.01)
    assert above <= bound(count, RATE, BURST)
    requests, at_once = asked.said_at_once()
    assert at_once == requests > WINDOW_S * RATE / 2
    assert [client.refused + client.failed + client.lost for client in asked.modest] == [0] * count
    company.remove_topics(asked.name)


def disturbed(asked: Asked, say: Say, disturb: Callable[[], None], what: str) -> None:
    """Ask while something is done; in the end all that the law gives was had, and no more than the bound."""
    with asked.asking():
        begun = time.monotonic()
        time.sleep(SETTLED_S)
        disturb()
        time.sleep(max(0.0, DISTURBED_S - (time.monotonic() - begun)) + AFTER_S)
    made = asked.admitted()
    above, seen = most_above(made, RATE, BURST), most_above(asked.seen(), RATE, BURST)
    total = sum(one.mutations for one in made)
    law = BURST + RATE * (made[-1].at - made[0].at) / 1000
    say(f"{what}: {total} admitted, the law gives {law:.1f}; {above:.2f} above, {seen:.2f} by the answers")
    assert above <= bound(len(NAMES), RATE, BURST)
    assert total >= law - len(NAMES)
    asked.company.remove_topics(asked.name)


def test_proxies_come_and_go(company: Company, say: Say) -> None:
    """One is killed and started again, twice: the second time while it still counts from the first."""

    def kill_and_start() -> None:
        for pause_s in (3.0, 15.0):
            company.kill("three")
            time.sleep(pause_s)
            company.launch("three")
            until(company.proxies["three"].serves, what="a proxy that serves", limit_s=60)

    asked = Asked(company, say)
    company.only(*NAMES)
    disturbed(asked, say, kill_and_start, "one killed and started again, twice")


def test_a_proxy_is_cut_off_from_the_topics(company: Company, say: Say) -> None:
    """It reaches its clients' cluster and not Weir's topics: it stops admitting by itself, and comes back."""

    def cut() -> None:
        company.path.cut()
        time.sleep(25.0)
        company.path.mend()

    asked = Asked(company, say)
    company.only(*NAMES[:2])
    company.launch("three", apart=True)
    company.await_all()
    disturbed(asked, say, cut, "one cut off for 25 s")


def test_the_broker_and_a_proxy_stand_still(company: Company, say: Say) -> None:
    """Each for some seconds."""

    def stop_and_go() -> None:
        for pid in (company.kafka.pids[0], company.proxies["two"].process.pid):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(STILL_S)
            finally:
                os.kill(pid, signal.SIGCONT)
            time.sleep(STILL_S)

    asked = Asked(company, say)
    company.only(*NAMES)
    disturbed(asked, say, stop_and_go, f"broker and proxy still for {STILL_S:.0f} s each")


def test_clocks_that_disagree(company: Company, say: Say) -> None:
    """By six seconds, of which nothing is seen: all go by the brokers' clock."""
    asked = Asked(company, say)
    company.only(*NAMES, two=3_000, three=-3_000)
    disturbed(asked, say, lambda: None, "clocks 3 s ahead and 3 s behind")
