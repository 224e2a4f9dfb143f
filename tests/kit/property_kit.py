"""How hard properties are tried: a little with every change, hard before a release."""

from hypothesis import settings

SCALES = {"quick": 1 / 12, "thorough": 4.0}
"""Profile -> how many examples it makes of each that a property asks for."""
_LEAST = 10


def register_profiles() -> None:
    """Make the profiles known; `quick` holds unless `--hypothesis-profile thorough` is said.

    A quick run always makes the same examples, so that it says something of the change before it; a thorough
    one makes others each time. No deadlines: a machine may be busy with other things.
    """
    for name, scale in SCALES.items():
        count = _scaled(100, scale)
        settings.register_profile(
            name, max_examples=count, deadline=None, derandomize=name == "quick", print_blob=True
        )
    settings.load_profile("quick")


def tries(count: int) -> settings:
    """Settings of a property: how many examples it is to be tried with, scaled by the profile.

    Args:
        count: more than the usual 100 for what is cheap and has many corners, fewer for what takes long.
    """
    return settings(max_examples=_scaled(count, SCALES[settings.get_current_profile_name()]))


def _scaled(count: int, scale: float) -> int:
    return max(_LEAST, round(count * scale))
