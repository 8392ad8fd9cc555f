"""`commeff reproduce`: a published table as a grid of runs, the numbers printed there, and claims that are judged.

What a table imports is here: quantities (`final`, `floor`, `least`, `rate`, `to`, `onset`, `slope`), `claim` with the
comparisons `order`, `within`, `equal` beside < and >, `apply` for functions of values, and `printed`.

- `reading`: a table's file, executed; `faults`: what is wrong in it, with its line. `table`: what it says.
- `cases`: what is run or measured; `scales`: what each scale runs; `tuning`: which values are tried to choose one.
- `settable`, `recorded`: settings and metrics that there are, by name. `traces`: what a command leaves behind.
- `constants`: what functions of a case see, such as L, mu, delta and rho of its parts.
- `runs`: what trains, in two stages if values are chosen; `choosing`: the best of them.
- `results`: a case's results over its seeds; `quantities`: numbers of one run; `words`: quantities as tables say them.
- `places`, `values`, `slopes`, `verdicts`: what claims compare. `judging`: claims and the results make verdicts.
- `measures`: tables that need no training.
- `page`, `figure`, `command`: what is written, and who runs it.
"""

from commeff.experiments.reproduce.judging import claim
from commeff.experiments.reproduce.slopes import slope
from commeff.experiments.reproduce.statements import printed
from commeff.experiments.reproduce.values import apply, equal, order, within
from commeff.experiments.reproduce.words import final, floor, least, onset, rate, to

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
