"""All checks of `weir doctor`: one more is a function and a line here."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from streaming.contract.errors import WeirError
from weir.doctor.checks.acls import check_acls, check_authorizer
from weir.doctor.checks.brokers import check_cluster, check_reach, check_versions
from weir.doctor.checks.certificates import check_certificates
from weir.doctor.checks.doors import check_admin, check_doors
from weir.doctor.checks.settings import check_settings
from weir.doctor.checks.signs import check_clocks, check_job, check_proxies
from weir.doctor.checks.topics import check_logins, check_replicas, check_topics
from weir.doctor.findings import Finding, Named, warning
from weir.doctor.patient import Patient, Unreached

Check = Callable[[Patient], Iterator[Finding]]
CHECKS: Final[Mapping[str, Check]] = MappingProxyType({
    "cluster": check_cluster,
    "versions": check_versions,
    "topics": check_topics,
    "replicas": check_replicas,
    "authorizer": check_authorizer,
    "acls": check_acls,
    "logins": check_logins,
    "brokers": check_reach,
    "proxies": check_proxies,
    "job": check_job,
    "clocks": check_clocks,
    "certificates": check_certificates,
    "doors": check_doors,
    "admin": check_admin,
    "settings": check_settings,
})  # fmt: skip
"""By name, in the order in which they are made. None raises what `examine` does not take, or waits long."""


def examine(patient: Patient, checks: Mapping[str, Check] = CHECKS) -> list[Named]:
    """What all of them find; one that cannot be made says why."""
    found: list[Named] = []
    for name, check in checks.items():
        try:
            found += [(name, each) for each in check(patient)]
        except Unreached as failure:
            found.append((name, warning(f"not looked at: {failure.brief}", "see `cluster`")))
        except (WeirError, OSError) as failure:
            found.append((name, _not_made(str(failure))))
        except Exception as failure:  # noqa: BLE001  # the others are wanted all the same, at 3 a.m. above all
            found.append((name, _not_made(f"{type(failure).__name__}: {failure}")))
    return found


def _not_made(why: str) -> Finding:
    mend = "mend what it says; kafka.client may need an administrator's login"
    return warning(f"could not be looked at: {why}", mend)
