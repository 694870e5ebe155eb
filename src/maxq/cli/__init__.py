"""The command line: a module per noun, loaded only when its command is used (an `admin` command must start fast)."""
