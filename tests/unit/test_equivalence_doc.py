"""docs/equivalence.md lists the differences from Kafka's own quotas that tests hold."""

from equivalence_kit import BEGIN, DIFFERENCES, END, PAGE, table

from weir.jars.folders import ROOT


def test_the_page_is_what_the_tests_know() -> None:
    """The table, from its first row to the last."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == f"\n{table()}\n"


def test_each_difference_has_a_test() -> None:
    """Which is there."""
    for row in DIFFERENCES:
        file, _, test = row.test.partition("::")
        assert f"\ndef {test}(" in (ROOT / "tests" / "kafka" / file).read_text(), row
