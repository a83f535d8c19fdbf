"""What measurements say: which count, who is to blame for failed ones, what they mean for the network."""
