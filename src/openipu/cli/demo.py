"""The command `openipu demo`: tutorial models on virtual IPUs beside stock Keras."""

import importlib.util

import click


@click.command()
def demo() -> None:
    """Train two small models on virtual IPUs and with stock Keras, and compare.

    Takes about a minute on a laptop and needs no network.

    \b
    Example:
      openipu demo
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise click.ClickException("The demo needs TensorFlow and Keras: pip install 'openipu[tensorflow]'.")
    from openipu.demo import main

    main()
