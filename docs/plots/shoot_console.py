"""The pictures of the console and of `weir top` in README and docs/operate/console.md: a whole stack, real
clients, Chromium.

    PYTHONPATH=.:tests/kit .venv/bin/python docs/plots/shoot_console.py [MINUTES]
"""

import re
import sys
import threading
import time
from contextlib import ExitStack
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from browser_kit import Browser
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from load_kit import ConfluentProducer
from PIL import Image
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from stack_kit import Up, create

from streaming.contract.topics import Cluster, Topics
from weir.top.screen import RecentPast, shown

HERE: Final = Path(__file__).parent
SIZE: Final = (1180, 620)
COLUMNS: Final = 150
POLICIES: Final = """\
version: 1
quotas:
  - entity: {user: null, client-id: terraform}
    controller_mutation_rate: 1
  - entity: {user: null, client-id: ci}
    controller_mutation_rate: 1
  - entity: {user: null, client-id: null}
    controller_mutation_rate: 20
resourcegroups:
  orders: {publishRateInMsgs: 200}
  clicks: {publishRateInMsgs: 500}
  audit: {publishRateInMsgs: 400}
namespaces:
  acme/orders: {resourcegroup: orders}
  acme/audit:
    resourcegroup: audit
    backlogQuotaMap: {destination_storage: {limitSize: 20000000, policy: producer_request_hold}}
  web/clicks:
    resourcegroup: clicks
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 350}
broker: {resourceUsagePublishIntervalInSecs: 1, backlogQuotaCheckIntervalInSeconds: 2}
backpressure: {partitions: {"*": {algorithm: vegas}}}
"""
TOPICS: Final = {"acme.orders.new": 260.0, "acme.audit.log": 250.0, "web.clicks.all": 430.0}
"""Topic -> records that are to be sent each second."""
PARTITIONS: Final = {"terraform": 2, "ci": 1, "backup": 9}
"""Client id -> partitions that it creates every second and a half."""
_PAUSE_S: Final = 1.5


def creates(proxy: str, client_id: str, partitions: int, stop: threading.Event) -> None:
    """A client that goes on creating topics, refused or not."""
    for number in count():
        try:
            client = KafkaAdminClient(bootstrap_servers=proxy, client_id=client_id)
            create(client, {f"{client_id}-{number}": partitions})
            client.close()
        except KafkaError:
            pass
        if stop.wait(_PAUSE_S):
            return


def reads(proxy: str, topic: str, stop: threading.Event) -> None:
    """A group that reads all there is."""
    consumer = Consumer({"bootstrap.servers": proxy, "group.id": "board", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not stop.is_set():
        consumer.consume(100, 0.5)
    consumer.close()


def load(stack: ExitStack, up: Up) -> None:
    """All clients, until the stack is left."""
    proxy, stop = up.ready["proxy"], threading.Event()
    admin = AdminClient({"bootstrap.servers": up.ready["kafka"]})
    for each in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
        each.result(30)
    tasks: list[tuple[Any, ...]] = [(creates, proxy, name, size, stop) for name, size in PARTITIONS.items()]
    tasks.append((reads, proxy, "web.clicks.all", stop))
    threads = [threading.Thread(target=what, args=given) for what, *given in tasks]
    for thread in threads:
        thread.start()
        stack.callback(thread.join)
    stack.callback(stop.set)
    for topic, rate in TOPICS.items():
        stack.enter_context(ConfluentProducer(proxy, topic, rate))


def shoot(browser: Browser, state: str, name: str) -> None:
    """A picture, packed as small as it gets with all its colours."""
    browser.open(state)
    browser.reads("live", "#link")
    time.sleep(2)
    file = HERE / name
    browser.driver.save_screenshot(str(file))
    Image.open(file).convert("RGB").save(file, optimize=True)


def shoot_top(kafka: str) -> None:
    """What `weir top` prints; without the font that the library would have viewers fetch."""
    past = RecentPast(Cluster(bootstrap=kafka, topics=Topics(), client={}))
    console = Console(record=True, width=COLUMNS, file=StringIO(), highlight=False)
    console.print(shown(past, {"by": "used", "name": "", "limit": 50}, past.read(), COLUMNS))
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    (HERE / "top.svg").write_text(console.export_svg(title="weir top", code_format=form, unique_id="top"))
    past.close()


def main() -> None:
    """Run the stack and its clients, then look."""
    folder = Path(mkdtemp(prefix="weir-console-"))
    (folder / "policies.yaml").write_text(POLICIES)
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with ExitStack() as stack:
        up = stack.enter_context(Up(folder, "--policies", str(folder / "policies.yaml")))
        browser = stack.enter_context(Browser(folder / "profile", up.ready["admin"]))
        browser.size(*SIZE)
        load(stack, up)
        time.sleep(60 * minutes)
        shoot_top(up.ready["kafka"])
        shoot(browser, "#/limits", "console.png")
        shoot(browser, "#/entity/mutation/user%3DANONYMOUS%2Cclient-id%3Dterraform", "console-entity.png")


if __name__ == "__main__":
    main()
