"""`commeff report`: a store of runs as a page, tables and figures, at whatever stage the runs are.

records -> grids -> variants -> analysis -> tables, figures -> html, markdown, latex

- `records`: run folders as they are found, damaged ones too. `grids`: what was planned, or what the runs differ in.
- `variants`: everything but the seed, tuned keys at their best. `statistics`: intervals, paired differences, crossings.
- `analysis`: all numbers of a report, computed once. `results`, `contents`, `networks`: the tables.
- `plots`, `panels`, `figures`: what is drawn. `writing`: the files, by `write_report(store, out)`.
"""

from commeff.experiments.report.write.writing import Report, write_report

__all__ = ["Report", "write_report"]
