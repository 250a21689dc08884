"""What a person looks at: Textual draws what `core.board` computes. Only commands that open a screen load this.

The command that opens a screen hands it everything it can see and do, as functions: how to look (`Look`), and a table
of verbs. Nothing here knows where a journal lies or how a mission is started.
"""
