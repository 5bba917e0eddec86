"""Feeds from the device: the modes exist, the queues are refused when made, as `refused.TABLE` says."""

import enum

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))


class IPUOutfeedMode(enum.Enum):
    """Which of the enqueued values the host receives."""

    ALL = "all"
    LAST = "get_last"
