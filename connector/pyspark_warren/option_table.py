"""The options of `format("warren")` in one table: name, type, default, bounds, meaning."""

from __future__ import annotations

from typing import Final

from pyspark_warren.amqp_options import AMQP_SOURCE
from pyspark_warren.browse_options import BROWSE
from pyspark_warren.claim_options import CLAIMS
from pyspark_warren.connection_options import CONNECTION
from pyspark_warren.failing_options import FAILING
from pyspark_warren.filter_options import FILTER
from pyspark_warren.oauth_options import OAUTH
from pyspark_warren.option_spec import Spec
from pyspark_warren.sink_options import SINK

SPECS: Final[tuple[Spec, ...]] = (
    *CONNECTION,
    *OAUTH,
    *CLAIMS,
    *FAILING,
    *AMQP_SOURCE,
    *BROWSE,
    *FILTER,
    *SINK,
)
