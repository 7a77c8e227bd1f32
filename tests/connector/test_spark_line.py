"""What the lines of Spark have: what would be ignored is refused, what all have is used."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from pyspark_warren import datasource
from pyspark_warren.errors import UnsupportedError
from pyspark_warren.options.reading import PUSH_ALWAYS, PUSH_ONCE
from pyspark_warren.sink.sink import WarrenBatchWriter, WarrenStreamWriter


def test_every_line_hands_arrow_batches_to_both_sinks() -> None:
    """Spark 4.0 looks at this class alone, whatever kind of query writes."""
    assert issubclass(WarrenStreamWriter, DataSourceArrowWriter)
    assert issubclass(WarrenStreamWriter, DataSourceStreamWriter)
    assert issubclass(WarrenBatchWriter, DataSourceArrowWriter)


@pytest.mark.parametrize("said", [PUSH_ALWAYS, PUSH_ONCE])
def test_predicates_that_no_line_offers_are_refused(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasource, "PUSHES_FILTERS", False)
    with pytest.raises(UnsupportedError, match=f"pushFilters={said}.*offers no predicates"):
        datasource.check_pushing(said)


def test_predicates_of_another_use_of_a_frame_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datasource, "PUSHES_FILTERS", True)
    monkeypatch.setattr(datasource, "FILTERS_BY_SCAN", False)
    datasource.check_pushing(PUSH_ONCE)
    with pytest.raises(UnsupportedError, match="pushFilters=once"):
        datasource.check_pushing(PUSH_ALWAYS)
