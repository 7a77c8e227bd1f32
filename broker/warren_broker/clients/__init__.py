"""What connections of both protocols have in common."""
