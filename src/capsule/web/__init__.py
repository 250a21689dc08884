"""The page in the browser: HTML made here from what `core` computes, live by server-sent events.

The command that serves it passes in all that it can see and do, as functions (`WebActions`). This package knows no
journal and starts no mission by itself. `server` answers requests that `admission` lets in; `views` has the content of
each page, `rendering` makes HTML of it, `live` sends what has changed, `jobs` runs commands.
"""
