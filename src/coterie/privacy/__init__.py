"""What happens to an upload on its way, what that guarantees, and what a curious server still learns."""
