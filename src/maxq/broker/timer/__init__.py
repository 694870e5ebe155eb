"""Messages with a delivery time (timer messages): what the broker does about the files of `store/timer`.

`timed_messages.py` puts the parts together. `timer_hook.py` turns a message away to the timer's topic;
`timer_service.py` fills the wheel and delivers what is due (`slot_work.py`, `timer_delivery.py`,
`timer_failures.py`, `unread_markers.py`). `timer_checkpoints.py` writes down how far it is;
`prior_run_deliveries.py` finds what was delivered since. `recall_message.py` takes a message back, `timer_admin.py`
and `timer_status.py` show the timer to operators, and `timer_exchange.py` to the other brokers of the group.
"""
