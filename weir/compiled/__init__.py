"""The modules that each request passes, compiled by mypyc where there is a C compiler: faster, else the same.

`python -m weir.compiled` compiles them; nothing needs it. What is compiled is found by a hash of all
sources that it may hold something of: after a change of one a proxy runs these, until it is done again.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from weir.jars.folders import ROOT

MODULES: Final = (
    "enforcer.host.dial",
    "enforcer.host.outlet",
    "enforcer.host.secured",
    "enforcer.host.turns",
    "enforcer.kafka.addresses.repeats",
    "enforcer.kafka.chain",
    "enforcer.kafka.connection",
    "enforcer.kafka.guard.produce",
    "enforcer.kafka.guard.protected",
    "enforcer.kafka.pacing",
    "enforcer.kafka.pipeline.inbox",
    "enforcer.kafka.pipeline.last_request",
    "enforcer.kafka.pipeline.requests",
    "enforcer.kafka.pipeline.responses",
    "enforcer.kafka.slots.flow",
    "enforcer.wire.kafka.addresses",
    "enforcer.wire.kafka.frames",
)
"""None whose classes others inherit from: those must stay as they are."""
OFF: Final = "WEIR_INTERPRETED"
"""An environment variable: if it is set to anything, a proxy runs its sources."""

_BASE: Final = ROOT / ".weir" / "compiled"
_ROOMS: Final = ("enforcer", "streaming")
_SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX")
_LIMIT_S: Final = 600.0


def folder() -> Path:
    """Where the compiled form of the sources as they are now lies, or would."""
    told = blake2b(str(_SUFFIX).encode(), digest_size=10)
    for path in [Path(__file__), *(path for room in _ROOMS for path in sorted((ROOT / room).rglob("*.py")))]:
        told.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        told.update(path.read_bytes())
    return _BASE / told.hexdigest()


def use() -> None:
    """Have what is compiled loaded from now on, all or nothing; to be called before any of it is imported."""
    made = _made(folder()) if _BASE.exists() and not os.environ.get(OFF) else {}
    # Compiled modules know each other's classes by their compiled form.
    if made and not made.keys() & sys.modules.keys():
        sys.meta_path.insert(0, _Finder(made))


def in_use() -> bool:
    """Whether what is compiled is what runs."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _made(place: Path) -> dict[str, Path]:
    """Compiled modules by name."""
    found = place.rglob(f"*{_SUFFIX}")
    return {str(path.relative_to(place)).removesuffix(_SUFFIX).replace("/", "."): path for path in found}


class _Finder(MetaPathFinder):
    """Finds modules in another place than their packages.

    Args:
        made: by name.
    """

    def __init__(self, made: Mapping[str, Path]) -> None:
        self._made = made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See MetaPathFinder."""
        file = self._made.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def missing() -> str:
    """What is not here that compiling needs; empty: nothing."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"a C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers (Python.h)"
    return "" if find_spec("mypyc") and find_spec("setuptools") else "mypyc with setuptools"


def compile_all() -> Path:
    """Compile the modules, unless that is done; what other sources were compiled to goes.

    Raises:
        CalledProcessError, TimeoutExpired, OSError: it failed, or sources changed meanwhile.
    """
    place = folder()
    if not place.exists():
        _BASE.mkdir(parents=True, exist_ok=True)
        files = [f"{name.replace('.', '/')}.py" for name in MODULES]
        with tempfile.TemporaryDirectory(dir=_BASE) as work:
            command = [sys.executable, "-m", "weir.compiled", work, *files]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=_LIMIT_S)
            if folder() != place:
                raise OSError("sources have changed meanwhile")
            os.rename(Path(work, "made"), place)
    for other in _BASE.iterdir():
        # Another may be at work.
        if other != place and not other.name.startswith(tempfile.gettempprefix()):
            shutil.rmtree(other)
    return place


def _build(work: str, files: Sequence[str]) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    extensions = mypycify(list(files), opt_level="2", debug_level="0", target_dir=f"{work}/c")
    words = ["build_ext", f"--build-lib={work}/made", f"--build-temp={work}/o"]
    setup(name="weir-compiled", ext_modules=extensions, script_args=words)


def main(words: Sequence[str]) -> int:
    """`python -m weir.compiled`; the exit status is 1 if it cannot be done here."""
    if words:
        _build(words[0], words[1:])
        return 0
    try:
        if lacking := missing():
            raise OSError(f"{lacking} is missing")
        print(f"compiling {len(MODULES)} modules, about a minute", flush=True)
        compile_all()
    except (OSError, subprocess.SubprocessError) as error:
        why = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        print(f"proxies stay interpreted: {why.strip()[-300:]}")
        return 1
    print("proxies that start from now on run it")
    return 0
