"""The command line.

`app.py` is the root: a module for each noun, loaded only when its command is used (`lazy.py`), for an `admin`
command must start fast. `commands` are for users and operators of one server, `admin` is mqadmin, `pipeline` are
jobs on Spark; `terminal` is what all of them share. `manual.py` makes docs/reference/admin-commands.md.
"""
