"""Of the process: its logs, its files, its certificates' ends."""
