"""Lists of items as other programs, and people, write them."""

from __future__ import annotations

import pytest

from capsule.core.errors import UsageError
from capsule.core.importing import Imported, read_items

MARKDOWN = """\
# Ideas

Some words before.

- Sort the list
  by name, then by age

  - also here
- [ ] Fix the clock
- [x] Done long ago
  and forgotten
1. Paint it

## Later

* Ship it
"""
CSV = (
    "\ufeffTitle,Body,Labels,Impact,URL,Other\n"
    '"Sort, please",by name,"ui; slow",high,https://x/1,z\nPaint it,,,,,\n,,,,,\n'
)
JSON = """\
[{"number":7,"title":"Sort\\nit","body":"By name.\\u001b[31m","labels":[{"name":"bug"}],"url":"https://x/7"},
 {"number":8,"title":"Old","state":"CLOSED"}, {"number":9,"title":"Paint it","body":null,"state":"OPEN"}]
"""


@pytest.mark.promise("commands.import")
def test_a_markdown_list_has_a_title_for_each_entry_and_what_lies_below_it() -> None:
    assert read_items(MARKDOWN) == [
        Imported("Sort the list", {"description": "by name, then by age\n\n- also here"}),
        Imported("Fix the clock"),
        Imported("Paint it"),
        Imported("Ship it"),
    ]


@pytest.mark.promise("commands.import")
def test_a_table_has_columns_by_their_usual_names() -> None:
    assert read_items(CSV) == [
        Imported("Sort, please", {"description": "by name", "impact": "high"}, ("ui", "slow"), "https://x/1"),
        Imported("Paint it"),
    ]


@pytest.mark.promise("commands.import")
def test_issues_of_gh_are_read_and_closed_ones_left_out() -> None:
    sort = Imported("Sort it", {"description": "By name.[31m"}, ("bug",), "https://x/7")
    assert read_items(JSON) == [sort, Imported("Paint it")]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "It holds no items"),
        ("just a sentence\n", "It holds no items"),
        ("[]", "It holds no items"),
        ('[{"title": "x"', "not valid JSON"),
        ("title,impact\nx,low\n,high\n", "Line 3 has no title."),
        ('[{"title": "x"}, {"number": 3}]', "Entry 2 has no title."),
    ],
)
def test_what_is_no_list_is_refused(text: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        read_items(text)
