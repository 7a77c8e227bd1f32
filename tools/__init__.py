"""What build.py is made of; standard library only."""
