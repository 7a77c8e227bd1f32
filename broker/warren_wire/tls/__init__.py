"""TLS contexts and certificates, from one place."""
