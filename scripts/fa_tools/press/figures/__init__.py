"""What draws the figures: pictures, timelines, interactive pages."""
