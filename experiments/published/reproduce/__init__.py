"""`commeff reproduce`: a published table as a grid of runs, the numbers printed there, and claims that are judged.

- `language`: expressions and claims, parsed; nothing else is ever evaluated. `grammar`: what claims may say.
- `table`: what a YAML file says; `cases`: what is run or measured; `tuning`: which values are tried to choose one.
- `scales`: what each scale runs. `settable`, `recorded`: settings and metrics that there are, by name.
- `checking`, `names`, `parameters`: what a table speaks of and nothing has, seen before anything runs;
  `rehearsal`: what no numbers could suit, by a trial on made-up ones. `traces`: what a command leaves behind.
- `constants`: what theorems call L, mu, delta, rho, computed from the parts of a case.
- `runs`: what trains, in two stages if values are chosen; `choosing`: the best of them.
- `results`: a case's results over its seeds; `quantities`: the floor, rate, or bytes to a level of a curve;
  `beside`: those of a case beside another.
- `judging`: a claim and the results make a verdict.
- `measures`: tables that need no training.
- `page`, `figure`, `command`: what is written, and who runs it.
"""
