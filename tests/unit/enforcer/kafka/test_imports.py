"""What a proxy loads."""

import subprocess
import sys

HEAVY = ("numba", "llvmlite", "pandas", "pyspark")


def test_a_proxy_loads_no_compiler_and_no_spark() -> None:
    """It runs the law's own functions as plain Python."""
    code = f"import sys, enforcer.kafka.proxy; print([name for name in {HEAVY} if name in sys.modules])"
    run = [sys.executable, "-c", code]
    seen = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    assert seen.stdout.strip() == "[]"
