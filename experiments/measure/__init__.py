"""What machines do: benches, network lab, scalability."""
