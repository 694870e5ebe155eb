"""The name server: which brokers there are, and which topics they have.

`controller.py` starts and stops one; `route_info_manager.py` has the tables; the processors answer requests.
"""
