"""The text that Prometheus reads, by its own library, which is imported for it."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpusched.metrics.families import Family

__all__ = ["text_of"]


def text_of(families: Iterable[Family]) -> str:
    """Return the families in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(families))
    return generate_latest(registry).decode()


class _Moment(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield each family as the library has it."""
        for family in self._families:
            made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = made(family.name.removesuffix("_total"), family.text, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric([_clean(label) for label in labels], value)
            yield metric


def _clean(label: str) -> str:
    """Return a label without what is no UTF-8, such as in the name of a user."""
    return label.encode("utf-8", "replace").decode()
