"""The compose folder holds together, as far as can be said without an engine; `make compose-test` runs it."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.policy.files import load_policies
from streaming.policy.settings import read_settings
from weir.cli import build_parser
from weir.settings import KafkaSettings
from weir.settings_file import SECTIONS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "compose"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)\}")
COPY = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
RUN = re.compile(r"^RUN (?:.*\\\n)*.*$", re.MULTILINE)
PARTS = ("kafka", "job", "proxy", "admin", "collect")
USER = "10001:10001"
READY = "/tmp/ready.json"


def env() -> dict[str, str]:
    """What .env.example says."""
    lines = (FOLDER / ".env.example").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))


def compose() -> dict[str, Any]:
    """compose.yaml with the values of .env.example."""
    values = env()
    text = VARIABLE.sub(lambda found: values[found.group(1)], (FOLDER / "compose.yaml").read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def services() -> dict[str, dict[str, Any]]:
    """All of them."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def words(part: str) -> list[str]:
    """A part's command."""
    return shlex.split(services()[part]["command"])


def option(part: str, name: str) -> str:
    """The value of one of its options."""
    given = words(part)
    return given[given.index(name) + 1]


def test_a_copy_on_another_host_is_a_proxy_of_its_own() -> None:
    """Its name is made up there, of host and port."""
    assert "--id=" in words("proxy") and build_parser("proxy").parse_args(words("proxy")).id == ""


def test_the_example_says_every_default() -> None:
    """Who copies it changes nothing, and finds each variable there is."""
    used = {name: default for name, default in VARIABLE.findall((FOLDER / "compose.yaml").read_text())}
    assert used.pop("COMPOSE_PROFILES") == ""
    said = env()
    assert said.pop("COMPOSE_PROFILES") == "local"
    assert said.pop("COMPOSE_PROJECT_NAME") == "weir"
    assert said == used


@pytest.mark.parametrize("part", PARTS)
def test_commands_are_commands_of_weir(part: str) -> None:
    """By the parser itself, and the health check reads what the part writes."""
    given = words(part)
    args = build_parser(given[0]).parse_args(given)
    assert str(args.ready_file) == READY
    check = services()[part]["healthcheck"]["test"]
    assert check == ["CMD", "weir", "healthy", READY]
    assert build_parser("healthy").parse_args(check[2:]).ready_file == args.ready_file


def test_two_collectors_do_not_take_turns() -> None:
    """Each is started again whenever it ends."""
    given = words("collect")
    assert build_parser("collect").parse_args(given).stand_by


def test_settings_and_policies_are_valid() -> None:
    """By our own readers; Kafka is where its service listens."""
    for name, cls in SECTIONS:
        read_settings(cls, name, str(FOLDER / "weir.yaml"))
    load_policies(str(FOLDER / "policies.yaml"))
    where = read_settings(KafkaSettings, "kafka", str(FOLDER / "weir.yaml")).bootstrap
    assert where == f"{option('kafka', '--advertise')}:{option('kafka', '--port')}"


def test_settings_that_are_examples_are_valid(tmp_path: Path) -> None:
    """With the comments taken away they read a secret."""
    text = (FOLDER / "weir.yaml").read_text()
    secret = tmp_path / "kafka_password"
    secret.write_text("hunter2\n")
    lines = [re.sub(r"^  # ( *[\w.]+:.*| {4}\w.*)$", r"  \1", line) for line in text.splitlines()]
    file = tmp_path / "weir.yaml"
    file.write_text("\n".join(lines).replace("/run/secrets", str(tmp_path)))
    read = {name: read_settings(cls, name, str(file)) for name, cls in SECTIONS}
    assert read["kafka"].client["sasl.password"] == "hunter2"
    login = read["job"].kafka_options["kafka.sasl.jaas.config"]
    assert login.endswith('username="weir" password="hunter2";')


@pytest.mark.parametrize("name", [*PARTS, "prometheus", "grafana", "tool"])
def test_each_service_is_confined_and_bounded(name: str) -> None:
    """No rights, no more memory than said, logs that end; Grafana writes where it likes in its own image."""
    service = services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name != "grafana")
    assert service["mem_limit"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert service["restart"] == ("no" if name == "tool" else "unless-stopped")


def test_only_what_clients_need_is_published_and_only_here() -> None:
    """The proxy, the admin API and the two that show figures; by default on the loopback address."""
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert sorted(published) == ["admin", "grafana", "prometheus", "proxy"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    # Clients are told the proxy's own port numbers.
    _, outside, inside = published["proxy"][0].split(":")
    assert outside == inside
    first, _, last = inside.partition("-")
    assert option("proxy", "--listen") == f"0.0.0.0:{first}"
    # Broker 1 has the second port behind the first.
    assert int(last) >= int(first) + 2
    assert published["admin"][0].split(":")[2] == option("admin", "--listen").split(":")[1]


def test_prometheus_asks_each_part_where_it_answers() -> None:
    """Port by port."""
    jobs = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in jobs for each in job.get("static_configs", ()) for target in each["targets"]}
    ports = {part: option(part, "--metrics").split(":")[1] for part in PARTS if part != "kafka"}
    assert targets == {f"{part}:{port}" for part, port in ports.items()}


def test_volumes_and_secrets_are_there() -> None:
    """What is named is declared, what is declared is used, files are in the folder, secrets are made."""
    whole = compose()
    mounted = [volume.split(":")[0] for each in services().values() for volume in each.get("volumes", ())]
    named = {source for source in mounted if not source.startswith(".")}
    assert named == set(whole["volumes"])
    for source in set(mounted) - named:
        assert (FOLDER / source).exists(), source
    used = {secret for each in services().values() for secret in each.get("secrets", ())}
    assert used == set(whole["secrets"])
    script = (FOLDER / "secrets.sh").read_text()
    for name, secret in whole["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        assert f"make {name} " in script


def test_all_images_that_are_needed_are_named() -> None:
    """Those that `up` starts in any profile: without one of them nothing starts."""
    needed = (FOLDER / "README.md").read_text().partition("What you need:")[2].partition("```")[0]
    for service in services().values():
        image = service["image"].partition(":")[0]
        assert "grafana" in service.get("profiles", ()) or f"`{image}`" in needed


def with_programs(tmp_path: Path, **programs: str) -> tuple[Path, dict[str, str]]:
    """A folder with the script of secrets, and an environment in which programs do this."""
    folder, bin = tmp_path / "compose", tmp_path / "bin"
    folder.mkdir()
    bin.mkdir()
    shutil.copy(FOLDER / "secrets.sh", folder)
    for name, does in programs.items():
        (bin / name).write_text(f"#!/bin/sh\n{does}\n")
        (bin / name).chmod(0o755)
    return folder, {"PATH": f"{bin}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("said", "environment", "image"),
    [
        (None, {}, "weir:latest"),
        ("WEIR_IMAGE=host/weir\nWEIR_TAG='1.2'\n# WEIR_TAG=3\nA=b; exit 1\n", {}, "host/weir:1.2"),
        ("WEIR_IMAGE=host/weir\n", {"WEIR_IMAGE": "mine"}, "mine:latest"),
    ],
)
def test_secrets_are_given_away_by_the_image_that_compose_runs(
    tmp_path: Path, said: str | None, environment: dict[str, str], image: str
) -> None:
    """Of somebody who is not root: by the engine, with the image of the environment or of .env."""
    folder, path = with_programs(tmp_path, id="echo 1000", docker=f'echo "$@" >{tmp_path}/asked')
    if said is not None:
        (folder / ".env").write_text(said)
    subprocess.run(["sh", folder / "secrets.sh"], env=path | environment, check=True, timeout=10)
    assert f" {image} -c chown" in (tmp_path / "asked").read_text()
    assert (folder / "secrets" / "admin_tokens").stat().st_mode & 0o777 == 0o600


def test_no_secret_is_empty(tmp_path: Path) -> None:
    """Of a full disk, or where there is no od: Grafana took its own default, and there was no token."""
    folder, path = with_programs(tmp_path, id="echo 1000", docker="exit 0", od="exit 1")
    (folder / "secrets").mkdir()
    left, tokens = (folder / "secrets" / name for name in ("grafana_password", "admin_tokens"))
    left.touch()
    command = ["sh", folder / "secrets.sh"]
    said = subprocess.run(command, env=path, capture_output=True, text=True, timeout=10, check=False)
    assert said.returncode == 1 and "drew nothing" in said.stderr and not tokens.exists()
    (tmp_path / "bin" / "od").unlink()
    subprocess.run(command, env=path, check=True, timeout=10)
    assert re.fullmatch("[0-9a-f]{48}", left.read_text()) and left.read_text() not in tokens.read_text()
    assert sorted(file.name for file in left.parent.iterdir()) == [
        "admin_tokens", "grafana_password", "kafka_password"
    ]  # fmt: skip


def test_whoever_needs_the_jobs_topics_waits_for_it() -> None:
    """By its health."""
    for part in ("proxy", "admin", "collect"):
        assert services()[part]["depends_on"] == {"job": {"condition": "service_healthy"}}


def test_the_image_holds_every_package() -> None:
    """The Dockerfile copies what pyproject.toml installs, and .dockerignore lets all of it through."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {package.split(".")[0] for package in project["tool"]["setuptools"]["packages"]}
    sources = {part for line in COPY.findall((FOLDER / "Dockerfile").read_text()) for part in line.split()}
    assert rooms <= sources
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == let_in
    for source in sources:
        assert (ROOT / source).exists(), source


def test_image_and_stack_agree() -> None:
    """Who runs, whose the secrets are, where the ready file is, which Python."""
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert dockerfile.count(f"USER {USER}") == 2
    assert f"chown {USER}" in (FOLDER / "secrets.sh").read_text()
    assert f'CMD ["weir", "healthy", "{READY}"]' in dockerfile
    assert set(re.findall(r"python(3\.\d+)/", dockerfile)) == {"3.11"}


def test_what_a_mirror_wants_is_there_where_it_is_asked() -> None:
    """Secrets of the build: pip's settings and Maven's."""
    for run in RUN.findall((FOLDER / "Dockerfile").read_text()):
        assert ("id=pip," in run) == ("pip install" in run)
        assert ("id=maven," in run) == ("weir setup" in run)


@pytest.mark.parametrize("script", ["entry.sh", "cut.sh", "secrets.sh", "build.sh"])
def test_scripts_are_scripts(script: str) -> None:
    """Readable by a plain shell, and executable."""
    path = FOLDER / script
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=10)
    assert path.stat().st_mode & 0o111


def test_a_copy_of_the_laws_that_comes_too_late_is_taken_back(tmp_path: Path) -> None:
    """A health check begins beside the part itself: 6 MB of the slower one stayed in /tmp."""
    cache, script = tmp_path / "tmp" / "compiled", tmp_path / "entry.sh"
    for file, text in {
        script: (FOLDER / "entry.sh").read_text().replace("/opt/weir", f"{tmp_path}/weir"),
        tmp_path / "weir" / "compiled" / "law.nbc": "",
        tmp_path / "weir" / "bin" / "weir": "#!/bin/sh\n",
        tmp_path / "words" / "cp": f'#!/bin/sh\n/bin/cp "$@" && mkdir -p {cache}/of-another\n',
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    cache.parent.mkdir()
    env = {"PATH": f"{tmp_path / 'words'}:{os.environ['PATH']}", "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run(["sh", str(script)], check=True, timeout=10, env=env)
    assert [*cache.parent.iterdir()] == [cache]
