"""IPU options in the config of a model: what `get_config` adds, and how a loaded model gets it back."""

from typing import Any

from openipu.program import Reduction
from openipu.tensorflow.keras import stages
from openipu.tensorflow.keras.options import Options, ReplicatedMetricReductionMethod

_FIELDS = {
    "gradient_accumulation_steps_per_replica": "accumulation",
    "asynchronous_callbacks": "asynchronous_callbacks",
    "pipelining_gradient_accumulation_steps_per_replica": "pipeline_accumulation",
    "pipelining_device_mapping": "device_mapping",
    "pipelining_accumulate_outfeed": "accumulate_outfeed",
    "infeed_kwargs": "infeed",
    "outfeed_kwargs": "outfeed",
}
_REDUCTION, _METRICS = "gradient_accumulation_reduction_method", "replicated_metric_reduction_method"
NAMES = (*_FIELDS, _REDUCTION, _METRICS, *stages.NAMES)


def config_of(model: Any) -> dict[str, Any]:
    """What was set on a model; nothing for a model as it was made, whose config stays that of stock Keras."""
    options = model._ipu.options
    pipelined = stages.is_pipelined(model)
    if options == Options() and not pipelined:
        return {}
    config = {name: getattr(options, field) for name, field in _FIELDS.items()}
    config[_REDUCTION] = list(Reduction).index(options.reduction)
    config[_METRICS] = options.metric_reduction.value
    return {**config, **stages.config_of(model)}


def restore(model: Any, config: dict[str, Any]) -> None:
    """Give a model loaded in scope the options of its config."""
    options = model._ipu.options
    for name, field in _FIELDS.items():
        if name in config:
            setattr(options, field, config[name])
    if _REDUCTION in config:
        options.reduction = list(Reduction)[config[_REDUCTION]]
    if _METRICS in config:
        options.metric_reduction = ReplicatedMetricReductionMethod(config[_METRICS])
    stages.restore(model, config)
