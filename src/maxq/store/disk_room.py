"""A disk without room is not a broken one: the store waits for room, where any other error of the disk ends it."""

import errno


def lacks_room(error: OSError) -> bool:
    """Did the file system, or the user's quota on it, have no room?"""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
