"""What holds for every test."""

import os

from property_kit import register_profiles

# Java's second compiler pays in a run of minutes, and no test is that long: without it Spark's tests take a
# quarter of the processor time. Users have both.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

register_profiles()
