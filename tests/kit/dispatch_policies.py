"""Dispatch rates and counts of deliveries as properties draw them, the law's and the proxies'."""

from typing import Any

from hypothesis import strategies as st

_RATES = st.fixed_dictionaries(
    {},
    optional={
        "dispatchThrottlingRateInMsg": st.sampled_from([-1, 1, 10, 33]),
        "dispatchThrottlingRateInByte": st.sampled_from([-1, 50, 1000]),
        "ratePeriodInSecond": st.sampled_from([1, 3, 86_400]),
    },
)
KINDS = st.fixed_dictionaries({}, optional={"dispatchRate": _RATES, "subscriptionDispatchRate": _RATES})
COUNTS = st.sampled_from([0, 1, 6, 10, 45, 300])


def broker_settings(*flags: str) -> st.SearchStrategy[dict[str, Any]]:
    """A broker's rates, what else is counted, and other flags."""
    flags += "dispatchThrottlingOnBatchMessageEnabled", "dispatchThrottlingOnNonBacklogConsumerEnabled"
    return st.fixed_dictionaries(
        {},
        optional={
            "dispatchThrottlingRateInMsg": st.sampled_from([-1, 40]),
            "dispatchThrottlingRatePerTopicInByte": st.sampled_from([-1, 500]),
            "dispatchThrottlingRatePerSubscriptionInMsg": st.sampled_from([-1, 7]),
            **{flag: st.booleans() for flag in flags},
        },
    )
