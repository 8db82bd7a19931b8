"""Programs to run and to read: `python -m treadle.examples.digits`, `.mnist FOLDER`, `.gpt FILE`."""
