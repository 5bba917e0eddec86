"""What a launch is refused with."""


class LaunchError(Exception):
    """The instances cannot be started as asked; nothing was started, or everything was ended."""
