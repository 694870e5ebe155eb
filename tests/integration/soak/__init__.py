"""Many who come and go: what a server holds afterwards is what it held before."""
