"""A diff as lines with their numbers and colours; whatever is in it, it is only text."""

from __future__ import annotations

import re
from html import unescape

import pytest

from capsule.pages.diff import MOST_LINES, files
from capsule.pages.environment import macro

PYTHON = """\
diff --git a/src/a b.py b/src/a b.py
index 111..222 100644
--- a/src/a b.py
+++ b/src/a b.py
@@ -10,3 +10,4 @@ class Pay:
 def total():
-    return "old"  # wrong
+    text = "
+diff --git a/x b/x"
     return 1
\\ No newline at end of file
"""


OURS = {"details", "summary", "code", "table", "caption", "tbody", "tr", "td", "span"}


def drawn(text: str) -> str:
    return str(macro("changes.html", "diff", text))


def words(markup: str) -> str:
    return unescape(re.sub("<[^>]+>", "", markup))


def test_lines_have_their_numbers_on_both_sides() -> None:
    [file] = files(PYTHON)
    assert file.path == "src/a b.py"
    told = [(line.side, line.old, line.new, words(line.text)) for line in file.lines]
    assert told == [
        ("head", None, None, "class Pay:"),
        ("same", 10, 10, "def total():"),
        ("old", 11, None, '    return "old"  # wrong'),
        ("new", None, 11, '    text = "'),
        ("new", None, 12, 'diff --git a/x b/x"'),
        ("same", 12, 13, "    return 1"),
    ]


def test_known_languages_are_coloured_and_others_are_not() -> None:
    assert '<span class="hl-k">def</span> <span class="hl-n">total</span>' in drawn(PYTHON)
    assert "hl-" not in drawn(PYTHON.replace("a b.py", "a b.unknown"))


@pytest.mark.promise("screens.report")
@pytest.mark.parametrize("name", ["x.py", "x.html", "x.js", "x"])
def test_no_line_becomes_markup(name: str) -> None:
    nasty = '</code><script>alert(1)</script>"\x1b[31m\u202e\r<b>'
    markup = drawn(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1 @@ {nasty}\n+{nasty}\n")
    assert {*re.findall(r"<(\w+)", markup)} <= OURS
    assert words(markup).count("<script>alert(1)</script>") == 2
    assert not set(markup) & {"\x1b", "\u202e", "\r"}


def test_what_has_no_lines_says_so() -> None:
    assert "not text" in drawn("diff --git a/x.png b/x.png\nBinary files a/x.png and b/x.png differ\n")
    assert files("no diff at all") == []


def test_of_a_long_file_the_beginning_is_shown() -> None:
    rows = "+x\n" * (MOST_LINES + 50)
    text = f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,{MOST_LINES + 50} @@\n{rows}"
    [file] = files(text)
    assert (len(file.lines), file.left_out) == (MOST_LINES, 51)
    assert "51 more lines" in drawn(text)
    assert "<details" in drawn(text) and " open>" not in drawn(text)
