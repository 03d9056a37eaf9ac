"""What makes documents: excerpts, tables, charts, pictures, checks of text. Imports laboratory and product."""
