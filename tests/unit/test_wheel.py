"""What is installed is whole: a package or a list that was forgotten is missing on other machines only."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streaming", "enforcer", "weir")


def test_the_wheel_holds_every_module_and_what_is_read_at_run_time(tmp_path: Path) -> None:
    """Built from a copy, since building leaves files behind; nothing is fetched for it."""
    copy, out = tmp_path / "copy", tmp_path / "out"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True, timeout=60)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".py", ".xml", ".sha256", ".yaml", ".json", ".html", ".css", ".js", ".svg")
    }
    assert held == wanted
