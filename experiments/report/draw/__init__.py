"""What a store holds, as figures."""
