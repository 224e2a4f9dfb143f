"""`weir doctor` as a whole: all checks, whatever becomes of one, and how it is shown."""

from collections.abc import Iterator
from types import SimpleNamespace

import orjson
import pytest
from doctor_kit import patient_of

from streaming.contract.errors import WeirError
from weir import cli
from weir.doctor import examination
from weir.doctor.examination import CHECKS, examine
from weir.doctor.findings import Finding, as_json, as_lines, error, ok, warning
from weir.doctor.patient import Door, Patient, Unreached, client, metadata

FOUND = [("a", ok("good")), ("long-name", error("bad\x1b", "mend it")), ("b", warning("odd", "look"))]


def test_a_check_that_fails_keeps_no_other_from_being_made() -> None:
    """Whatever it raises, also after it found something; without a cluster it is not told again and again."""

    def fails(failure: Exception) -> Iterator[Finding]:
        yield ok("this far")
        raise failure

    made = examine(
        patient_of(),
        {
            "one": lambda _: fails(WeirError("no")),
            "two": lambda _: fails(OSError(13, "denied")),
            "three": lambda _: fails(KeyError("x")),
            "four": lambda _: fails(Unreached("gone")),
            "last": lambda _: iter([ok("well")]),
        },
    )
    assert [(name, str(each.status)) for name, each in made] == [
        ("one", "warning"), ("two", "warning"), ("three", "warning"), ("four", "warning"), ("last", "ok"),
    ]  # fmt: skip
    assert "KeyError: 'x'" in made[2][1].what and "the cluster does not answer" in made[3][1].what
    assert all(each.mend for name, each in made if name != "last")


def test_a_question_is_asked_once_also_without_an_answer() -> None:
    """Nobody waits for it twice."""
    asked = []

    def ask(_: Patient) -> int:
        asked.append(1)
        raise WeirError("no")

    patient = patient_of()
    for _ in range(2):
        with pytest.raises(WeirError, match="no"):
            patient.once(ask)
    assert len(asked) == 1


def test_without_a_cluster_each_check_says_something() -> None:
    """One error; what needs no cluster is looked at all the same."""
    found = examine(patient_of({metadata: Unreached("no answer")}))
    assert {name for name, _ in found} == {*CHECKS}
    assert [name for name, each in found if each.status == "error"] == ["cluster"]


@pytest.mark.parametrize(
    ("client_of", "key"),
    [
        ({"no.such.property": "x"}, " no.such.property"),
        ({"security.protocol": "tls"}, " security.protocol"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}, " ssl.ca.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "nonsense"}, ""),
    ],
)
def test_settings_that_librdkafka_does_not_take_are_no_silent_cluster(
    client_of: dict[str, str], key: str
) -> None:
    """One error that names the key; the rest needs no cluster, or says that nobody was asked."""
    asked = patient_of(client_of=client_of, settings_file=__file__)
    del asked.answers[client], asked.answers[metadata]
    found = examine(asked)
    (wrong,) = (each for _, each in found if each.status == "error")
    assert wrong.what.startswith("kafka.client is wrong, so nobody was asked: ")
    assert wrong.mend == f"mend kafka.client{key} in {__file__}"
    (topics,) = (each for name, each in found if name == "topics")
    assert topics.what == "not looked at: kafka.client is wrong"


def test_lines_for_people() -> None:
    """The worst first, with what mends it; nothing that a terminal obeys."""
    assert as_lines(FOUND) == [
        "ERROR    long-name  bad\\x1b",
        "                    -> mend it",
        "WARNING  b          odd",
        "                    -> look",
        "OK       a          good",
        "1 error, 1 warning, 1 ok",
    ]


def test_json_has_the_form_of_the_contract() -> None:
    """In order of the checks."""
    assert orjson.loads(as_json(FOUND)) == [
        {"check": "a", "status": "ok", "what": "good", "mend": ""},
        {"check": "long-name", "status": "error", "what": "bad\x1b", "mend": "mend it"},
        {"check": "b", "status": "warning", "what": "odd", "mend": "look"},
    ]


@pytest.mark.parametrize(("found", "status"), [(FOUND, 1), (FOUND[::2], 0), (FOUND[:1], 0)])
def test_the_exit_status_tells_of_errors(
    found: list[tuple[str, Finding]],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And of nothing else; options say where parts listen."""
    seen: list[Patient] = []

    def take(patient: Patient) -> list[tuple[str, Finding]]:
        seen.append(patient)
        return found

    monkeypatch.setattr(examination, "examine", take)
    assert cli.main(["doctor", "--kafka", "b:1", "--pulsar-listen", "h:2", "--json"]) == status
    assert len(orjson.loads(capsys.readouterr().out)) == len(found)
    doors = seen[0].doors
    assert seen[0].cluster.bootstrap == "b:1"
    assert doors["pulsar"] == Door(section="pulsar", address=("h", 2), given=True)
    assert doors["admin"] == Door(section="admin", address=("127.0.0.1", 18080), given=False)


def test_errors_count_where_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weir doctor | head -3` of a large cluster: the status was 0."""

    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(examination, "examine", lambda _: FOUND)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(write=gone))
    args = cli.build_parser("doctor").parse_args(["doctor"])
    assert args.run(args) == 1
