"""Recurrent layers: one time loop and its gradient, for every front end."""

from openipu.compiler.recurrent.activations import ACTIVATIONS
from openipu.compiler.recurrent.cells import GRU, LSTM, Cell, Plain
from openipu.compiler.recurrent.loop import Kept, backward, forward, run

__all__ = ["ACTIVATIONS", "GRU", "LSTM", "Cell", "Kept", "Plain", "backward", "forward", "run"]
