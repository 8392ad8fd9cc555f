"""What splitting a model changes: nothing of a method's numbers; bytes and memory as formulas say."""
