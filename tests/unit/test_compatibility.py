"""docs/compatibility.md shows what `make matrix` has kept, of all that it tries."""

from matrix_kit import BEGIN, END, KAFKAS, LAWS, PAGE, PULSAR, by_law, kept, nodes, table


def test_the_page_is_what_is_kept() -> None:
    """The table, from its first row to the last."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == f"\n{table(kept())}\n"


def test_everything_that_is_tried_has_passed() -> None:
    """Each client that is let before a server, by every law."""
    found = [(row["server"].rpartition(".")[0], row["client"].partition(" ")[0]) for row in kept()]
    servers = [*(f"Kafka {server}" for server in KAFKAS), "Pulsar 4.0"]
    counts = [len(nodes(server)) for server in (*KAFKAS, PULSAR)]
    assert [sum(server == each for each, _ in found) for server in servers] == counts
    assert {row[law] for row in kept() for law in LAWS} == {"passed"}


def test_what_was_not_run_has_not_passed() -> None:
    """Nor a law of which another test has."""
    laws = nodes(PULSAR)[PULSAR]
    found = by_law(laws, {laws["Backlog"][0]: "passed"})
    assert found["Backlog"] == "not run, passed" and found["Dispatch"] == "not run"


def test_clients_of_which_the_same_came_stand_in_one_row() -> None:
    """Not one that failed, nor before another server."""
    row = {"server": "a", "client": "x", "date": "d", **dict.fromkeys(LAWS, "passed")}
    others = {**row, "client": "y"}, {**row, "client": "z", "Dispatch": "failed"}, {**row, "server": "b"}
    found = [line.split(" | ")[:2] for line in table([row, *others]).splitlines()[2:]]
    assert found == [["| a", "x, y"], ["| a", "z"], ["| b", "x"]]
