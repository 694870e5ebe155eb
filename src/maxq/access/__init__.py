"""Access control of a server, broker or name server: files, requests that change rules, the gate before processors."""
