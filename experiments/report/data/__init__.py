"""What a store holds, as tables and sentences."""
