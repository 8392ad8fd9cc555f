"""How the processes of one run know who they are, meet, notice failures and write their logs. Knows nothing of runs."""
