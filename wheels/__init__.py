"""Everything that is published: wheels for Linux, one for all other systems, and the source archive.

`build.py` makes them (`make wheels`), `headers.py` finds what C compilers need of each Python, `wheel_file.py` puts
compiled modules into a wheel, `smoke.py` installs one where there is no compiler and sends a message with it.
`notes.py` prints the notes of the release. `make release` does all of it and uploads nothing.
"""
