"""Hardware and price catalogues, named cost formulas."""
