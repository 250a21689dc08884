"""The page in the browser: HTML made here from what `core` computes, live by server-sent events.

The command that serves it hands it everything it can see and do, as functions (`WebActions`). Nothing here knows where
a journal lies or how a mission is started. `server` answers requests that `admission` let in; `views` says what stands
on each page, `rendering` makes HTML of it, `live` sends what has changed, `jobs` runs commands.
"""
