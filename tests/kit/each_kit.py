"""Many small cases of one test: what pytest does for each takes several times as long as the case."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

_SAID_MAX = 300

Test = Callable[..., None]


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """A test goes through all cases: as pytest.mark.parametrize, where a test asks for nothing made for it.

    What fails says with which case it does; those behind that are not tried.

    >>> @each("a", [1, 2])
    ... @each(("b", "c"), [(3, 4)])
    ... def test(a, b, c): print(a, b, c)
    >>> test()
    1 3 4
    2 3 4
    """
    named = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    kept = list(cases)
    assert kept

    def of(test: Test) -> Test:
        @wraps(test)
        def tried(**others: Any) -> None:
            for case in kept:
                given = dict(zip(named, case if len(named) > 1 else (case,), strict=True))
                try:
                    test(**given, **others)
                except BaseException as failed:
                    failed.add_note(f"with {given!r}"[:_SAID_MAX])
                    raise

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in named]
        tried.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return tried

    return of
