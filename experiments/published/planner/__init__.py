"""The planner against published measurements: tables, the fit of the constants, reports in results/planner."""
