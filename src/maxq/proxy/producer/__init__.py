"""What producers call.

`sending.py` knows every rule of sends and recalls; `plain_sends_cy.py` is the compiled way of sends of which nothing is
special, which leaves all others to it.
"""
