"""Forms: their parts are counted before anything is made of them."""

from __future__ import annotations

from email.parser import BytesParser

import pytest

from warren_broker.http.definitions import PARTS_MAX, form_fields
from warren_broker.http.replies import HttpRefusal

FORM = "multipart/form-data; boundary=XX"


def body(count: int) -> bytes:
    """A form of so many fields; the header's name is in small letters."""
    part = 'content-disposition: form-data; name="f{}"\r\n\r\n{}\r\n'
    return "".join(f"--XX\r\n{part.format(at, at)}" for at in range(count)).encode() + b"--XX--\r\n"


def test_as_many_fields_as_are_allowed_are_read() -> None:
    found = form_fields(FORM, body(PARTS_MAX))
    assert found == {f"f{at}": b"%d" % at for at in range(PARTS_MAX)}
    assert form_fields("application/json", b"{}") is None


def test_a_form_of_more_fields_is_refused_unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    usual = BytesParser.parsebytes

    def counted(self: BytesParser, text: bytes, headersonly: bool = False) -> object:
        parsed.append(len(text))
        return usual(self, text, headersonly)

    monkeypatch.setattr(BytesParser, "parsebytes", counted)
    with pytest.raises(HttpRefusal, match="more than"):
        form_fields(FORM, body(100_000))
    assert sum(parsed) < 100, "the header alone"
