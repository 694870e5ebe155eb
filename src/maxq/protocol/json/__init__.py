"""JSON as fastjson reads and writes it (`json_dialect.py`), and dataclasses as JSON bodies (`json_body.py`)."""
