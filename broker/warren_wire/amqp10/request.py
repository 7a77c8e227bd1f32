"""A request to `/management` as it came, with a body that is decoded later."""

from __future__ import annotations

from typing import Any

from warren_wire.amqp10.proton import Data, Message, lib


class RequestMessage(Message):  # type: ignore[misc]
    """Proton's message, with a body that becomes Python's values only when `value` is called.

    1. A client sends 4 MiB of a list of nulls, with a path that it may not use.  2. Proton takes
    some microseconds for each value.  3. So the path comes first, then the number of values.
    """

    def _post_decode(self) -> None:
        """See Message, which converts everything at once."""

    def _body(self) -> Any:
        return lib.pn_message_body(self._msg)

    def parts(self, most: int) -> int:
        """Return the number of values of the body, with those inside of others; at most most + 1.

        None of them is converted.
        """
        data, count, depth = self._body(), 0, 0
        lib.pn_data_rewind(data)
        while count <= most:
            if lib.pn_data_next(data):
                count += 1
                depth += bool(lib.pn_data_enter(data))
            elif depth:
                lib.pn_data_exit(data)
                depth -= 1
            else:
                break
        lib.pn_data_rewind(data)
        return count

    def value(self) -> Any:
        """Return the body; raises ValueError, TypeError, OverflowError, MessageException."""
        body = Data(self._body())
        return body.get_object() if body.next() else None
