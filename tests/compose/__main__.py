"""`make compose-test`: the images and the stack of compose/, for real.

Builds the images (twice: the second is what the stack is upgraded to), starts the stack from a copy of the
folder, and has it do and stand what story.py says. Takes the machine for up to a quarter of an hour.

From the environment:
    ENGINE      docker or podman (default: whichever works); without one it says so and ends with status 0
    BASE        image to build on (default: what the Dockerfile says)
    BUILD_ARGS  further arguments of build, such as a mirror wants (docs/operate/compose.md)
    TAG         tag of images that are there: nothing is built, and there is no upgrade
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

import story  # noqa: E402
from engine import INSTALL, Engine, Failed, Pulse, found, output  # noqa: E402
from stack import DOWN_LIMIT_S, Stack, free_ports  # noqa: E402

BUILD_LIMIT_S = 1_200.0
FIRST, SECOND = "compose-test-1", "compose-test-2"
_begun = time.monotonic()


def main() -> int:
    """Run it; the exit status."""
    with tempfile.TemporaryDirectory(prefix="weir-compose-") as name:
        folder = Path(name)
        with found(os.environ.get("ENGINE", ""), folder) as engine:
            if isinstance(engine, str):
                say(f"skipped: {engine}; install {INSTALL}")
                return 0
            say(f"engine {engine.name}, {' '.join(engine.compose)}")
            return run(engine, folder)


def run(engine: Engine, folder: Path) -> int:
    """Build, run the story, tear down whatever came of it."""
    given = os.environ.get("TAG", "")
    try:
        if not given:
            build(engine, FIRST)
            build(engine, SECOND)
        first = given or FIRST
        images = {
            "WEIR_TAG": first,
            # The images that are half as large have to do for all but the job and Kafka.
            "WEIR_ENFORCER_IMAGE": "weir-enforcer",
            "PROMETHEUS_IMAGE": f"weir-prometheus:{first}",
        }
        stack = Stack(engine, ROOT / "compose", folder, images, free_ports())
        env = {**engine.env, "WEIR_TAG": first}
        output([str(stack.folder / "secrets.sh"), engine.name], env, story.UP_LIMIT_S)
    except Failed as error:
        say(f"FAILED: {error}")
        return 1
    try:
        with Pulse(engine, stack.project):
            for step in steps(stack, upgrade=not given):
                for line in step:
                    say(line)
    except Failed as error:
        say(f"FAILED: {error}")
        say(last_words(stack))
        return 1
    finally:
        down(stack)
    say("passed; grafana was not run: its image is not ours")
    return 0


def steps(stack: Stack, *, upgrade: bool) -> Iterator[Iterator[str]]:
    """All of them, in turn."""
    yield story.comes_up(stack)
    yield story.quota_holds(stack)
    yield story.is_watched(stack)
    yield story.asks_for_tokens(stack)
    yield story.is_confined(stack)
    yield story.says_its_memory(stack)
    yield story.heals(stack)
    if upgrade:
        yield story.is_upgraded(stack, SECOND, f"{version()}+{SECOND}")
    yield story.remembers(stack)
    yield story.is_confined(stack)
    yield story.goes_away(stack)


def build(engine: Engine, tag: str) -> None:
    """All images, with what the environment says of it."""
    begun = time.monotonic()
    say(f"building the images {tag}, which takes minutes the first time")
    env = {**engine.env, "ENGINE": engine.name, "TAG": tag}
    output([str(ROOT / "compose" / "build.sh")], env, BUILD_LIMIT_S)
    say(f"built the images {tag} in {time.monotonic() - begun:.0f} s")
    for image in ("weir", "weir-enforcer", "weir-prometheus"):
        size = int(engine.ask("image", "inspect", "--format", "{{.Size}}", f"{image}:{tag}"))
        say(f"  {image} {size / 1e6:.0f} MB")


def version() -> str:
    """Of the project."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def last_words(stack: Stack) -> str:
    """The end of every part's log."""
    try:
        return stack.compose("logs", "--no-color", "--tail", "15", limit_s=DOWN_LIMIT_S)
    except Failed as error:
        return str(error)


def down(stack: Stack) -> None:
    """Leave nothing behind."""
    try:
        stack.compose("down", "-v", "-t", "5", limit_s=DOWN_LIMIT_S)
    except Failed as error:
        say(f"could not be torn down: {error}")


def say(line: str) -> None:
    """One line of progress with its time."""
    print(f"compose-test {time.monotonic() - _begun:5.0f} s  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
