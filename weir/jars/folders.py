"""Which kinds of jars there are, and where they lie."""

import os
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The clone; of an installed wheel, the folder of Python's packages."""
POMS: Final = Path(__file__).resolve().parent / "poms"
SPARK, KAFKA, PULSAR, PULSAR_ADMIN, PULSAR_TOOLS, SPARK_S3A = KINDS = (
    "spark", "kafka", "pulsar_broker", "pulsar", "pulsar_tools", "spark_s3a",
)  # fmt: skip
"""What the job adds to Spark, a local Kafka with its tools, a local Pulsar, `pulsar-admin`, Pulsar's
other tools, what the job adds for checkpoints on s3a://."""
OPTIONS: Final = {
    SPARK: "--job", KAFKA: "--kafka", PULSAR: "--pulsar", PULSAR_ADMIN: "--pulsar", PULSAR_TOOLS: "--tools",
    SPARK_S3A: "--s3a",
}  # fmt: skip
"""The options of `weir setup` that bring them."""
BY_DEFAULT: Final = (SPARK, KAFKA)
"""What it brings without any: what `weir up` needs."""


def is_clone() -> bool:
    """Whether this is a clone of the repository and not an installed wheel."""
    return (ROOT / "pyproject.toml").exists()


def jars_base() -> Path:
    """Where the folders of all kinds lie.

    $WEIR_JARS; else `.weir/jars` of the clone; else `weir/jars` of $XDG_DATA_HOME, which is
    ~/.local/share unless it says otherwise.

    Raises:
        WeirError: nobody has said where this user is at home.
    """
    given = os.environ.get("WEIR_JARS")
    if given:
        base = Path(given)
    elif is_clone():
        base = ROOT / ".weir" / "jars"
    else:
        try:
            data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        except RuntimeError as nowhere:
            raise WeirError("this user has no home folder for jars; set HOME or WEIR_JARS") from nowhere
        base = Path(data) / "weir" / "jars"
    # Without links: an archive of classes holds for one spelling of its jars' path.
    return base.resolve()


def folder_of(kind: str) -> Path:
    """Where the jars of a kind lie, or will."""
    return jars_base() / kind


def jars_dir(kind: str) -> Path:
    """Folder with the jars of `kind`, one of KINDS.

    Raises:
        WeirError: there are none; says how to get them.
    """
    folder = folder_of(kind)
    if not any(folder.glob("*.jar")):
        words = f"weir setup {OPTIONS[kind]}"
        also = " (in a clone: `make setup`)" if is_clone() and kind in BY_DEFAULT else ""
        raise WeirError(f"no {kind} jars in {folder}; run `{words}`{also} or set WEIR_JARS")
    return folder
