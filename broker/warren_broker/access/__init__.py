"""What a client may ask for: requests, rights, checks; without IO."""
