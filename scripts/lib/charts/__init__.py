"""One file a chart; each makes a Vega-Lite spec from records and a theme. scripts/chart.py renders them."""
