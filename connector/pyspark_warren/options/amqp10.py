"""Options of brokers that speak AMQP 1.0 alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.options.connection import OauthOptions
from pyspark_warren.options.specs import (
    AS_STREAM,
    BOTH,
    DAY_MS,
    READ,
    Rule,
    duration,
    options_of,
    word_of,
)
from warren.uri import SASL_PLAIN
from warren_wire.links.uris import AMQP10

NO_CBS: Final = "none"
SAS: Final = "sas"
JWT: Final = "jwt"
"""Values of the option cbs."""
ANY_SESSION: Final = "any"
_amqp10 = options_of(BOTH, BOTH, AMQP10)
_source = options_of(READ, AS_STREAM, AMQP10)


@dataclass(frozen=True, kw_only=True)
class Amqp10Options(OauthOptions):
    """Options of brokers that speak AMQP 1.0 alone."""

    cbs: str = _amqp10(
        "cbs",
        word_of(NO_CBS, SAS, JWT),
        NO_CBS,
        "broker=amqp10: log in with a token for the broker's node $cbs, as Azure Service Bus asks "
        "for: sas: signed with the key (password) of a shared access policy (user); jwt: of the "
        "options oauth…, or tokenFile",
        excludes=(
            Rule(
                lambda o: o.cbs != NO_CBS and o.sasl_mechanism != SASL_PLAIN,
                "={o.cbs} says how to log in, and so does saslMechanism; leave one of them out",
            ),
        ),
    )
    cbs_audience: str = _amqp10(
        "cbsAudience",
        str,
        "",
        "what the token is for; default: sb://HOST/QUEUE",
        requires=(Rule(lambda o: o.cbs != NO_CBS, "needs cbs=sas or cbs=jwt"),),
    )
    message_session: str = _source(
        "messageSession",
        str,
        "",
        "Azure Service Bus: any: receive the messages of one session after the other, which keeps "
        "the order of each; or the one session to receive",
    )
    session_idle_ms: int = _source(
        "sessionIdle",
        duration(100, DAY_MS),
        10_000,
        "messageSession=any: a session that has given nothing for so long is left for the next one",
        requires=(Rule(lambda o: o.message_session == ANY_SESSION, "needs messageSession=any"),),
    )


def check_cbs(options: Amqp10Options) -> None:
    """Refuse cbs=jwt without a token, and tokens that nothing would take."""
    tokens = options.token_file is not None or options.oauth_token_endpoint is not None
    if options.cbs == JWT and not tokens:
        raise OptionError(
            "option cbs=jwt needs a token: oauthTokenEndpoint with oauthClientId and its secret, "
            "or tokenFile"
        )
    if options.cbs == SAS and tokens:
        raise OptionError("option cbs=sas signs its token; leave out the options of another one")
