"""Counters of speculative decoding in the text that a server gives to Prometheus."""

import re
import reprlib
from collections.abc import Collection, Mapping
from typing import NamedTuple

from specsim.core._files import read_table

#: Names of series after the engine's, with what they count, and of the counters that every engine has.
SERIES: dict[str, str] = read_table("metrics")["series"]
COUNTERS = {name: SERIES[name] for name in [*SERIES][:3]}
#: The sum and the number of each histogram of times, with what they are of, and how many of it is one.
TIMES = {
    f"{name}_{end}": (f"{of} {unit}", scale)
    for name, of in read_table("metrics")["times"].items()
    for end, unit, scale in (("sum", "µs", 1e6), ("count", "count", 1.0))
}
NAME = re.compile(r"\s*([\w:]+)")
#: Longer lines are not read: their labels would take the square of their length.
LONGEST = 10_000


class Series(NamedTuple):
    """One line: `vllm:name{labels} value` has the engine "vllm". A timestamp after the value is left out."""

    engine: str
    name: str
    labels: Mapping[str, str]
    value: float


def read_series(line: str, names: Collection[str]) -> Series | None:
    """The series in a line; None for a name not in `names`, ValueError where Prometheus reads none."""
    found = NAME.match(line)
    engine, _, name = found[1].rpartition(":") if found else ("", "", "")
    if name not in names:
        return None
    from prometheus_client.parser import text_string_to_metric_families

    try:
        if len(line) > LONGEST:
            raise ValueError
        ((sample,),) = (family.samples for family in text_string_to_metric_families(line))
    except (ValueError, IndexError, OverflowError):  # the last two for some labels and timestamps
        raise ValueError(f"{reprlib.repr(line)} is not a series of Prometheus with a number") from None
    return Series(engine, name, sample.labels, sample.value)
