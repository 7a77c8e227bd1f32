"""The parts of build.py; standard library only."""
