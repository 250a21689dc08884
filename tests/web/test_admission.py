"""Who is let in, decided from the request alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from capsule.web.admission import MOST_SESSIONS, Answer, Asked, Keys, Served, Session, judge, names_of
from capsule.web.seals import Seals

# ---- who is let in


_KEYS = Keys(token="t0ken", room="room", _sessions=[Session(cookie="c00kie")])
_HERE = Served(frozenset({"127.0.0.1", "localhost"}), 8000)
_GOOD = {"method": "GET", "path": "/room/", "host": "127.0.0.1:8000", "cookie": "c00kie"}
_SOCKET = {**_GOOD, "path": "/room/terminal/ws", "opens_a_socket": True}
_FORM = {**_GOOD, "method": "POST", "origin": "http://127.0.0.1:8000"}


@pytest.mark.promise("screens.address")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (_GOOD, Answer.COME_IN),
        ({**_GOOD, "host": "LOCALHOST:8000"}, Answer.COME_IN),
        ({**_GOOD, "path": "/", "token": "t0ken", "cookie": None}, Answer.GIVE_COOKIE),
        ({**_GOOD, "cookie": None}, Answer.NO_KEY),
        ({**_GOOD, "cookie": ""}, Answer.NO_KEY),
        ({**_GOOD, "cookie": "t0ken"}, Answer.NO_KEY),
        ({**_GOOD, "cookie": "c00kïe\udcff"}, Answer.NO_KEY),
        ({**_GOOD, "cookie": None, "token": "t0ken"}, Answer.NO_KEY),
        ({**_GOOD, "path": "/"}, Answer.NO_KEY),
        ({**_GOOD, "path": "/", "token": "c00kie"}, Answer.NO_KEY),
        ({**_GOOD, "path": "/", "token": ""}, Answer.NO_KEY),
        ({**_GOOD, "path": "/rooms/"}, Answer.NO_KEY),
        ({**_GOOD, "path": "/static/js/textual.js"}, Answer.NO_KEY),
        ({**_GOOD, "path": "/download/1"}, Answer.NO_KEY),
        ({**_GOOD, "method": "PUT"}, Answer.ONLY_LOOKING),
        ({**_GOOD, "method": "HEAD"}, Answer.ONLY_LOOKING),
        ({**_FORM, "path": "/", "token": "t0ken"}, Answer.NO_KEY),
        ({**_FORM, "cookie": None}, Answer.NO_KEY),
        (_FORM, Answer.COME_IN),
        ({**_FORM, "origin": ""}, Answer.WRONG_ORIGIN),
        ({**_FORM, "origin": "null"}, Answer.WRONG_ORIGIN),
        ({**_FORM, "origin": "http://127.0.0.1:9000"}, Answer.WRONG_ORIGIN),
        ({**_FORM, "origin": "https://127.0.0.1:8000"}, Answer.WRONG_ORIGIN),
        ({**_GOOD, "built_in": True}, Answer.WRONG_ORIGIN),
        ({**_GOOD, "host": "evil.example:8000"}, Answer.WRONG_HOST),
        ({**_GOOD, "host": "127.0.0.1:8001"}, Answer.WRONG_HOST),
        ({**_GOOD, "host": "127.0.0.1"}, Answer.WRONG_HOST),
        ({**_GOOD, "host": "192.168.1.2:8000"}, Answer.WRONG_HOST),
        ({**_GOOD, "host": ""}, Answer.WRONG_HOST),
        ({**_SOCKET, "origin": "http://127.0.0.1:8000"}, Answer.COME_IN),
        ({**_SOCKET, "origin": ""}, Answer.WRONG_ORIGIN),
        ({**_SOCKET, "origin": "null"}, Answer.WRONG_ORIGIN),
        ({**_SOCKET, "origin": "http://127.0.0.1:9000"}, Answer.WRONG_ORIGIN),
        ({**_SOCKET, "origin": "http://localhost:8000"}, Answer.WRONG_ORIGIN),
        ({**_SOCKET, "origin": "http://127.0.0.1:8000.evil.example"}, Answer.WRONG_ORIGIN),
    ],
)
def test_only_who_has_every_key_comes_in(asked: Mapping[str, object], answer: Answer) -> None:
    assert judge(Asked(**asked), _KEYS, _HERE) is answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "asked_for", "good", "bad"),
    [
        ("127.0.0.1", "localhost", ["localhost:80", "localhost"], ["box:80", "10.0.0.1:80", "[::1]:80"]),
        ("::1", "::1", ["[::1]:80", "localhost:80"], ["127.0.0.1:80", "::1:80"]),
        ("10.0.0.1", "Box.lan", ["box.lan:80", "10.0.0.1"], ["localhost:80", "10.0.0.2:80"]),
        ("0.0.0.0", "0.0.0.0", ["10.0.0.9:80", "[fe80::1]:80", "box:80", "localhost"], ["evil.example:80", "box:81"]),
    ],
)
def test_an_address_is_served_under_its_own_names_only(
    address: str, asked_for: str, good: list[str], bad: list[str]
) -> None:
    served = names_of(address, asked_for, "Box", 80)
    assert [host for host in good + bad if served.includes(host)] == good


def test_keys_are_made_anew_and_shown_to_nobody() -> None:
    one, other = Keys(), Keys()
    first, second = Session(), Session()
    made = (one.token, one.room, other.token, other.room, first.cookie, second.cookie)
    assert len(set(made)) == len(made)
    assert min(map(len, (one.token, first.cookie))) >= 43
    assert (repr(one), repr(first)) == ("Keys()", "Session()")


@pytest.mark.promise("screens.address")
def test_an_address_opens_once_and_so_many_browsers_are_let_in() -> None:
    keys = Keys()
    tokens = [keys.token]
    assert keys.opens(tokens[0])
    cookies = {keys.enter().cookie}
    while token := keys.renew():
        assert keys.opens(token)
        assert not keys.opens(tokens[-1])
        tokens.append(token)
        cookies.add(keys.enter().cookie)
    assert not any(map(keys.opens, [*tokens, "", None]))
    assert len(cookies) == MOST_SESSIONS
    assert all(keys.session(cookie) for cookie in cookies)


# ---- forms


@pytest.mark.promise("screens.forms")
def test_a_form_is_of_its_session_and_counts_once() -> None:
    ours, others = Seals(), Seals()
    form, another = ours.form_id(), ours.form_id()
    assert ours.is_ours(ours.seal, form)
    made_up = [(others.seal, form), (ours.seal, others.form_id()), (ours.seal, "a.b"), (ours.seal, ""), ("", form)]
    assert not any(
        ours.is_ours(seal, name) for seal, name in [*made_up, (ours.seal, f"x{form}"), (ours.seal, "ä.\udcff")]
    )
    ours.remember(form, "/there")
    assert (ours.sent(form), ours.sent(another)) == ("/there", None)
