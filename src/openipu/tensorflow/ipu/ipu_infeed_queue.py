"""Feeds to the device, under the path IPU programs know."""

from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.iterators import IPUIterator, IPUOwnedIterator

__all__ = ["IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator"]
