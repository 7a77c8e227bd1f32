"""Bodies of forms, multipart/form-data (RFC 7578)."""

from __future__ import annotations

from email.parser import BytesParser
from email.policy import HTTP
from typing import Final

from warren_broker.http.replies import bad_request

FORM: Final = "multipart/form-data"
PARTS_MAX: Final = 16


def form_fields(content_type: str, body: bytes) -> dict[str, bytes] | None:
    """Return a form's fields by name, of several with one name the last; None: it is no form.

    raises  HttpRefusal: it is no form after all, or has more than PARTS_MAX fields
    """
    if content_type.partition(";")[0].strip().lower() != FORM:
        return None
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    boundary = BytesParser(policy=HTTP).parsebytes(head, headersonly=True).get_boundary()
    # Counted before anything is made of the parts; one more ends them.
    if boundary and body.count(f"--{boundary}".encode("latin-1", "replace")) > PARTS_MAX + 1:
        raise bad_request(f"the form has more than {PARTS_MAX} fields")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise bad_request(f"the body is not {FORM} with the boundary in its content-type")
    found: dict[str, bytes] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(data, bytes):
            found[name] = data
    return found
