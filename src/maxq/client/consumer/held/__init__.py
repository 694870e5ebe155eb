"""The messages of a consumer's queues between pull and commit.

`process_queue.py` is the state of one queue, over `held_messages_cy.py`, its messages. `fetch_queue_cy.py` is what
waits for `poll` and what polls have given out, of the queues of `assigned_queue.py`.
"""
