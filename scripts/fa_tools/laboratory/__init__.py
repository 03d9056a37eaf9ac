"""What measures, and keeps true what was measured. Imports product."""
