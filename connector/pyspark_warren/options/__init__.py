"""The options of `format("warren")`: fields with specifications, by subject."""
