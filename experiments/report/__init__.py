"""`commeff report`: a store of runs as a page, tables and figures, at whatever stage the runs are.

records -> grids -> variants -> analysis -> figures, tables -> page

- `records`: run folders as they are found, damaged ones too. `grids`: what was planned, or what the runs differ in.
- `variants`: everything but the seed, tuned keys at their best. `statistics`: intervals, paired differences, crossings.
- `analysis`: all numbers of a report, computed once. `summary`: the same in words.
- `wallclock`: modelled seconds on named clusters, from `computing` (FLOPs), a profile and its price; `cross_over`.
- `draw`: `plots` chooses what `panels` draws; `figures` makes SVG, PDF and PNG of it; `style` is a file of looks.
- `write`: `table` writes any table in any format; `table_main`, `table_details` say what stands in a report's;
  `html` is the page, `writing` the files, by `write_report(store, out)`.
"""
