"""The screens: Textual draws what `core.history` computes. Only commands that open a screen load this.

The command that opens a screen hands it everything it can see and do, as functions: how to look (`Look`), and a table
of verbs. Nothing here knows where a journal lies or how a mission is started.
"""
