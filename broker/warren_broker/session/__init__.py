"""A client's side of the conversation, without a socket."""
