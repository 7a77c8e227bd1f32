"""A broker that is not one, sources that die on purpose, and a pipeline to run them in."""
