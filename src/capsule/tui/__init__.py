"""The screens: Textual draws what `core.history` computes. Only commands that open a screen load this.

The command that opens a screen passes in all that it can see and do, as functions: one for reading (`Look`), and a
table of verbs. This package knows no journal and starts no mission by itself.
"""
