"""Access control of a server, a broker's or a name server's; the rules that it judges by are in `maxq.auth`.

`access_control.py` makes the parts from the settings. `guard.py` stands before all processors, `audit.py` writes
down what was refused or changed. `table_file.py` and `plain_acl_files.py` read the rules of ACL 2.0 and 1.0 and
watch their files; `auth_admin.py` and `plain_acl_admin.py` answer requests that change them.
"""
