"""HTML from templates: the report, and the pages of `capsule dashboard --web`.

`templates/` holds layouts and macros; `environment` loads them, `report` draws a report with them. A template gets
domain objects and asks `words` for their words. Text is escaped wherever it is put, and loses what could turn a line
around or colour a terminal: no template can forget either. Only code that draws a page loads this package, and with it
Jinja2; Pygments is loaded where a diff is drawn.
"""
