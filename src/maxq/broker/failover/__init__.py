"""What a broker does as a member of a group: who is the smallest, who acts as master, going online, escaping."""
