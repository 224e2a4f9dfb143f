"""testssl.sh, which tries what is known against TLS, before a door of ours (`make secure`)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from door_kit import Came, Door, in_loop
from tls_kit import Authority

LIMIT_S = 600.0
GRAVE = {"HIGH", "CRITICAL", "FATAL"}


class Curt(Came):
    """A client that is in, and let go with its first bytes: these are no Kafka."""

    def data_received(self, data: bytes) -> None:
        """What it sent."""
        self.transport.close()


async def tried(door: Door, ca: str, report: Path) -> None:
    """Everything; the findings go to a file."""
    host, port = door.address
    process = await asyncio.create_subprocess_exec(
        "testssl", "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--add-ca", ca,
        "--connect-timeout", "10", "--openssl-timeout", "10", "--jsonfile", str(report), f"{host}:{port}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode is not None and b"Done" in said, said.decode()[-2_000:]


@pytest.mark.parametrize("protocols", [["TLSv1.2", "TLSv1.3"], ["TLSv1.2"]], ids=["as_it_is", "old"])
def test_nothing_of_weight_is_found(tmp_path: Path, protocols: list[str]) -> None:
    """Protocols, ciphers, forward secrecy, renegotiation, tickets and every attack with a name."""

    authority, report = Authority(tmp_path), tmp_path / "report.json"

    async def run() -> None:
        async with Door(made=Curt, tls=authority.door(protocols=protocols)) as door:
            await tried(door, authority.ca, report)

    in_loop(run())
    found: list[dict[str, Any]] = json.loads(report.read_text())
    spoken = {one["id"]: one["finding"] for one in found}
    assert spoken["TLS1_2"].startswith("offered") and spoken["TLS1_1"] == "not offered"
    assert spoken["TLS1_3"].startswith("offered") == ("TLSv1.3" in protocols)
    grave = [one["id"] for one in found if one["severity"] in GRAVE]
    # How a certificate is taken back is its CA's to say; that of tests does not, which is found.
    assert "cert_revocation" in grave and [name for name in grave if not name.startswith("cert_")] == []
