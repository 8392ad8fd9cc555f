"""`commeff reproduce`: a published table as a grid of runs, the numbers printed there, and claims that are judged.

What a table imports is here: quantities (`final`, `floor`, `least`, `rate`, `to`, `onset`, `slope`), `claim` with the
comparisons `order`, `within`, `equal` beside < and >, `apply` for functions of values, and `printed`.

- `reading`: a table's file, executed, and what is wrong in it, with its line. `table`: what it says.
- `cases`: what is run or measured, at each scale; `tuning`: which values are tried, and the best.
- `constants`: what functions of a case see, such as L, mu, delta and rho.
- `runs`: what trains, in two stages if values are chosen; `pricing`: their modelled seconds.
- `measures`: tables that need no training.
- `results`: what runs record, by name, and a case's results over its seeds; `quantities`: numbers of them.
- `values`, `verdicts`: what claims compare. `judging`: claims, printed numbers and the results make verdicts.
- `page`, `plot`, `figure`, `command`: what is written, and who runs it.
"""

from commeff.experiments.reproduce.judging import claim, printed
from commeff.experiments.reproduce.quantities import final, floor, least, onset, rate, slope, to
from commeff.experiments.reproduce.values import apply, equal, order, within

__all__ = [
    "apply",
    "claim",
    "equal",
    "final",
    "floor",
    "least",
    "onset",
    "order",
    "printed",
    "rate",
    "slope",
    "to",
    "within",
]
