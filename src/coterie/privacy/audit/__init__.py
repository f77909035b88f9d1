"""What a curious server learns about people beyond what is popular: attacks on its recorded view."""
