"""Values and codecs of the protocols."""
