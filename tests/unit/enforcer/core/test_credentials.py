"""Whom a credential names."""

from each_kit import each

from enforcer.core.security.credentials import name_of_password, name_of_token


@each(
    ("credential", "name"),
    [
        (b"alice:secret", "alice"), (b"alice:s:t", "alice"), (b"alice", None), (b":secret", None),
        (b"\xff:secret", None), (b"a" * 1_024 + b":", "a" * 1_024), (b"a" * 1_025 + b":", None),
        (b"a:" + b"b" * 70_000, None),
    ],
)
def test_names_beside_passwords(credential: bytes, name: str | None) -> None:
    """Where one can be read."""
    assert name_of_password(credential) == name


@each(
    ("token", "name"),
    [
        # {"sub":"alice"}, {"sub":["alice","bob"]}, {"sub":7}, [], and none.
        (b"e30.eyJzdWIiOiJhbGljZSJ9.x", "alice"),
        (b"e30.eyJzdWIiOlsiYWxpY2UiLCJib2IiXX0.x", "alice"),
        (b"e30.eyJzdWIiOjd9.x", None),
        (b"e30.W10.x", None),
        (b"e30.!!!.x", None),
        (b"e30.eyJzdWIiOiJhbGljZSJ9", None),
        (b"", None),
        (b"e30." + b"W1tb" * 10_000 + b".x", None),
        (b"a.b.c" * 20_000, None),
    ],
)
def test_names_in_tokens(token: bytes, name: str | None) -> None:
    """Where one can be read."""
    assert name_of_token(token, "sub") == name
