"""DLedger's core: election and replication as a machine without clock, disk, network or chance of its own.

One `RaftNode` (node.py) is one member. Inputs are calls, each with the time (`now`, monotonic milliseconds); what it
wants done is fetched with `take()` after each of them, in the same turn of the loop:

    RaftNode(config: RaftConfig, ledger: Ledger, hard_state: HardState, rng: Rng, now)
    request(token, message, now)          a peer's VOTE, HEART_BEAT, PUSH, LEADERSHIP_TRANSFER (the last also from an
                                          operator); output Answer(token, reply) exactly once. Not APPEND, GET, METADATA
    reply(request_id, reply | None, now)  the answer to a SendRequest; None: no connection, time-out
    tick(now), next_tick() -> int         call it then at the latest
    appended(first, last, now)            the leader's store has entries first..last, not durable yet (`on_appended`)
    durable(index, now)                   this member's log is durable up to index (`on_durable`)
    term_stored(state, now)               a StoreTerm is durable
    link_lost(peer, now)                  the connection to a peer broke: what it answered a leader counts no more
    peer_lost(peer, now)                  so did the one from there: if it was the leader, no need to wait
    read_index(token, now)                output ReadReady(token, code, index)
    append_refusal(now) -> code | None    why a client's append cannot be taken now; None: it can
    take() -> list[Output]
    role, term, leader_id, committed_index, retain_index, status()

The core reads and writes the log directly (`Ledger`, ledger.py; stores of store/dledger are one), except for a leader's
own appends, which are the store's business. Outputs are in outputs.py.
"""
