"""What a policy makes of a partition: an algorithm and its numbers, defaults filled in
(docs/contract.md 3.4)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from streaming.laws.concurrency.algorithms import AIMD, AIMD_PLAIN, FIXED, GRADIENT, GRADIENT2, VEGAS
from streaming.policy.concurrency_schema import LimitAlgorithm, PartitionLimit, duration_ns

NUMBERS: Final = {
    LimitAlgorithm.FIXED: FIXED,
    LimitAlgorithm.AIMD: AIMD,
    LimitAlgorithm.AIMD_PLAIN: AIMD_PLAIN,
    LimitAlgorithm.VEGAS: VEGAS,
    LimitAlgorithm.GRADIENT: GRADIENT,
    LimitAlgorithm.GRADIENT2: GRADIENT2,
}

DEFAULTS: Final[dict[str, Any]] = PartitionLimit().model_dump(by_alias=True)
"""The default of every key of an entry, by algorithm."""

SETTINGS: Final = np.dtype(
    [
        ("algorithm", np.int64),
        ("windowed", np.int64),  # 1: a window gathers samples first
        ("limit", np.float64),  # of FIXED
        ("initialLimit", np.float64),
        ("minLimit", np.float64),
        ("maxLimit", np.float64),
        ("requestTimeout", np.int64),  # ns
        ("backoffRatio", np.float64),
        ("rttTolerance", np.float64),
        ("smoothing", np.float64),
        ("alpha", np.float64),  # what stands there, plus N times the log10 root; one of the two is 0
        ("alpha_root", np.float64),
        ("beta", np.float64),
        ("beta_root", np.float64),
        ("threshold", np.float64),
        ("threshold_root", np.float64),
        ("probeMultiplier", np.float64),
        ("probeJitter", np.float64),
        ("probeInterval", np.int64),  # samples, -1: never
        ("queueSize", np.float64),
        ("longWindow", np.float64),
        ("minWindow", np.int64),  # ns
        ("maxWindow", np.int64),  # ns
        ("windowSize", np.int64),
        ("minRttThreshold", np.int64),  # ns
    ]
)
"""One row a set of settings, as the compiled law reads it; 0 what its algorithm does not have."""
_ROOTED: Final = ("alpha", "beta", "threshold")
_DURATIONS: Final = ("requestTimeout", "minWindow", "maxWindow", "minRttThreshold")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The settings in force for one partition.

    Attributes:
        algorithm: which law.
        row: one SETTINGS record.
        key: the same for equal settings, however they were written; never 0. A change of key is a change of
            algorithm or parameters.
    """

    algorithm: LimitAlgorithm
    row: NDArray[Any] = field(compare=False)
    key: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """Settings of a checked entry of `backpressure.partitions`.

        Keys of other algorithms and, without `useWindowed`, of the window do not count. A fixed limit looks
        at no sample, so it has no window either.

        >>> plain = LimitSettings.of({"algorithm": "aimd"})
        >>> plain.key == LimitSettings.of({"aimd": {"requestTimeout": "0.2s"}, "vegas": {"alpha": 9}}).key
        True
        >>> plain.key == LimitSettings.of({"useWindowed": False}).key
        False
        """
        algorithm = LimitAlgorithm(value.get("algorithm", LimitAlgorithm.AIMD))
        windowed = value.get("useWindowed", True) and algorithm != LimitAlgorithm.FIXED
        numbers: dict[str, int | float] = {"algorithm": NUMBERS[algorithm], "windowed": int(windowed)}
        written = DEFAULTS[algorithm] | value.get(algorithm, {})
        if windowed:
            written = written | DEFAULTS["window"] | value.get("window", {})
        if algorithm == LimitAlgorithm.FIXED:
            written = written | {"initialLimit": written["limit"]}
        for name, setting in written.items():
            if name in _ROOTED:
                numbers[name], numbers[f"{name}_root"] = _rooted(setting)
            else:
                numbers[name] = duration_ns(setting) if name in _DURATIONS else setting
        row = np.zeros(1, dtype=SETTINGS)
        for name, number in numbers.items():
            row[name] = number
        # Of the numbers by name and not of the row's bytes: a setting added later must not reset all limits.
        spelled = ",".join(f"{name}={float(numbers[name])!r}" for name in sorted(numbers))
        digest = hashlib.blake2b(spelled.encode(), digest_size=8).digest()
        return cls(algorithm, row, int.from_bytes(digest, signed=True) or 1)


def _rooted(setting: int | str) -> tuple[float, float]:
    """A constant and a multiple of the log10 root: 3 -> (3, 0), "log10" -> (0, 1), "3*log10" -> (0, 3)."""
    if not isinstance(setting, str):
        return float(setting), 0.0
    factor, star, _ = setting.partition("*")
    return 0.0, float(factor) if star else 1.0
