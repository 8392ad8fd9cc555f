"""The planner beside published measurements. Everything here writes results/planner, or answers `commeff plan`.

published, tables/     the tables as they were printed, and each row as a case for the planner
measured, lectures     their figures beside the planner's: one table for each source
fit                    the five constants that are fitted on the measured tables
report                 `python -m commeff.experiments.published.planner tables`: report.md and its CSV files
searches, joint        `... search`: search methods at equal budgets
study, sweeps          `... study`: which method is fastest to a token budget; sweeps over bandwidths and sizes
question, plan, models what `commeff plan` reads, and how it answers
figures                timelines, sweeps and heat maps
"""
