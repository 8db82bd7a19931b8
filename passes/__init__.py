"""IR -> IR transforms. Imports ir only. Start reading in pipeline.py."""
