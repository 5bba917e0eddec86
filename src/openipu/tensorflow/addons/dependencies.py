"""What the addons need to be imported."""

from openipu import frameworks


def check_dependencies() -> None:
    """Refuse to go on without a TensorFlow that openipu works with; any other build than the IPU's will do."""
    frameworks.require("tensorflow")
