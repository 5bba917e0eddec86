"""What users are told about sample data: once that they have it, and that there is some when a download fails."""

import functools
import logging

from openipu import logs

_SYNTHETIC = "synthetic, made by openipu in the form of the original: accuracies say nothing about the real data"


@functools.cache
def announce(name: str, embedded: int = 0) -> None:
    """Say, the first time that a dataset is asked for, where its data comes from.

    Args:
      name: the dataset's.
      embedded: how many of its images come with openipu; none if the data is synthetic.
    """
    logs.install()
    origin = f"{embedded:,} of its images, repeated to the original's lengths" if embedded else _SYNTHETIC
    logging.getLogger("openipu.datasets").warning("OPENIPU_DATASETS=sample: %s is %s.", name, origin)


def told(error: Exception, name: str) -> Exception:
    """The error of a failed download with a word about the sample in what is printed."""
    advice = f"To go on without a download, set OPENIPU_DATASETS=sample: openipu has data in the form of {name}."
    # Only an error that is nothing but its message can be made again; others (errno, url, ...) keep their fields.
    if error.args == (str(error),):
        try:
            return type(error)(f"{error}\n{advice}")
        except TypeError:
            pass
    error.add_note(advice)
    return error
