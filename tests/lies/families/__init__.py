"""One file for each family; its docstring says what they have in common, `CASES` is the table."""
