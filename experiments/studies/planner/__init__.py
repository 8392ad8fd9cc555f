"""The planner beside published measurements: what writes results/planner.

published, tables/           the tables as they were printed, and each row as a case for the planner
measured, lectures           their figures beside the planner's: one table for each source
simple, partition            what the lectures count by: parameters, bubbles, splits of one layer
fit                          the four constants that are fitted on the measured tables
report, runs, baselines      `python -m commeff.experiments.studies.planner tables`: report.md and its CSV files
searches, joint              `... search`: search methods at equal budgets
study, heat_map              `... study`: which method is fastest to a token budget
"""
