"""`build.py poison`: a search for one message at fault, in Spark, with kills."""
