"""What a reader calls: kernels run, emulated, tried, inspected, bounded and compared. Imports no other room."""
