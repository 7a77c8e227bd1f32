"""Warren as a Spark Structured Streaming source or sink."""
