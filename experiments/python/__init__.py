"""The command line from Python and notebooks: the same checks, the same stores, results as pandas DataFrames."""

from commeff.experiments.python.grids import grid
from commeff.experiments.python.results import Runs, TrainedRun, load
from commeff.experiments.python.runs import run
from commeff.experiments.python.simulations import simulate

__all__ = ["Runs", "TrainedRun", "grid", "load", "run", "simulate"]
