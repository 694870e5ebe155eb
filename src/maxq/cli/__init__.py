"""The command line.

`app.py` is the root: a module for each noun, loaded only when its command is used (`lazy.py`), for an `admin`
command must start fast. `help_pages.py` and `examples.py` are how commands explain themselves, `connection.py` and
`contexts.py` where they connect and as whom, `json_schemas.py` what they print with --json. `commands` are for users
and operators of one server, `admin` is mqadmin, `pipeline` are jobs on Spark; `terminal` is what all of them share.
`manual.py` makes docs/reference/admin-commands.md.
"""
