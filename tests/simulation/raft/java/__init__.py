"""A member that follows Java's rules (DLedger 0.3.2), to be in one group with ours: what it says and when, not how.

Its loops run every few milliseconds, as there. It votes by the table of dledger.md §8.1, needs two questions for a
new term, stands in an old term first, takes COMPARE without a look at the term, buffers pushes by index alone, pushes
one entry at a time and again after a while. Kept from it are the faults that would break the rules whatever the
others do: it does not lose what it wrote (S2, S3: its disk syncs at once) and commits only entries of its own term
(S1, which 0.4.0 keeps, too). Truncations that come late are a hole in its protocol that nobody can close: no
duplication and no delay in its stories.

state what all parts know: role, term, leader, log, and what goes out (MemberState) election votes
(DLedgerLeaderElector) beats heart-beats, told and heard (DLedgerLeaderElector) pushes the leader's log to its
followers, and what is committed (EntryDispatcher, QuorumAckChecker) entries a follower's log (EntryHandler) transfer
leadership handed over and taken member all of it, with the inputs and outputs of RaftNode
"""
