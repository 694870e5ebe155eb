"""Parts of commands that deal with the terminal.

`report.py` is what a command found, in the form that was asked for; `progress.py`, `times.py` and `message_json.py`
are how it looks. `error_text.py`, `near_names.py` and `ends.py` are about what went wrong, `ctrl_c.py` and
`pipes.py` about commands that are stopped. `completion.py` completes command lines; `server_lines.py` is what servers
say when they are ready and when they end.
"""
