"""Instructions that a unit of work takes: a regression shows without a clock."""
