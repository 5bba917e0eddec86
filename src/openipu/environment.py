"""Every environment variable openipu reads, parsed in one place."""

import os


def choice(name: str, default: str, valid: tuple[str, ...]) -> str:
    """The value of an environment variable that must be one of `valid`.

    Args:
      name: the variable.
      default: what an unset or empty variable means.
      valid: all values a user may give.

    Returns:
      The value, in the spelling of `valid`.
    """
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    for value in valid:
        if given.lower() == value.lower():
            return value
    raise ValueError(f"{name} must be one of: {', '.join(valid)}. Received: {name}={given!r}.")


def use_sample_datasets() -> bool:
    """Whether `keras.datasets` answers from the embedded sample (OPENIPU_DATASETS=sample)."""
    return choice("OPENIPU_DATASETS", "download", ("download", "sample")) == "sample"
