"""One file a chart; each makes a Vega-Lite spec from records and a theme. scripts/fa chart renders them."""
