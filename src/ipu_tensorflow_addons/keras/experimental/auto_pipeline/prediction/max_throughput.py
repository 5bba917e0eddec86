"""The names of `max_throughput`."""

from openipu.tensorflow.addons.auto_pipeline.max_throughput import (
    get_pipeline_cost,
    search_for_max_throughput,
)

__all__ = [
    "get_pipeline_cost",
    "search_for_max_throughput",
]
