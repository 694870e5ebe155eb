"""The allowed forms of text settings."""

from maxq.config.setting import Form

NAME = Form(r"[A-Za-z0-9_.%|@-]{0,127}", "at most 127 letters, digits and _ . % | @ -")
ADDRESS = Form(r"[A-Za-z0-9_.:%\[\]-]{0,255}", "a host name or an IP address")
NETWORKS = Form(
    r"|\s*[0-9A-Fa-f.:]+(/[0-9]{1,3})?\s*(,\s*[0-9A-Fa-f.:]+(/[0-9]{1,3})?\s*)*",
    "IP addresses and networks (10.0.0.0/8) separated by ,",
)
HOST_PORT = Form(r"|[A-Za-z0-9_.:%\[\]-]+:[0-9]{1,5}", "host:port")
ADDRESSES = Form(
    r"|\s*[A-Za-z0-9_.:%\[\]-]+:[0-9]{1,5}\s*(;\s*([A-Za-z0-9_.:%\[\]-]+:[0-9]{1,5})?\s*)*",
    "host:port, several separated by ;",
)
HOURS = Form(r"([01]?[0-9]|2[0-3])(;([01]?[0-9]|2[0-3]))*;?", "hours from 00 to 23, several separated by ;")
USER_QUOTAS = Form(
    r"|[^:;,=]+:(bytes|messages)=[0-9]{1,18}(,(bytes|messages)=[0-9]{1,18})?"
    r"(;[^:;,=]+:(bytes|messages)=[0-9]{1,18}(,(bytes|messages)=[0-9]{1,18})?)*;?",
    "user:bytes=N,messages=N, several users separated by ;",
)
CODES = Form(r"|\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*", "request codes separated by ,")
DELAYS = Form(r"[0-9]{1,9}[smhd]( +[0-9]{1,9}[smhd])*", "delays such as `1s 5m 2h 1d`, separated by blanks")
