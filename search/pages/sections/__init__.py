"""The parts of a report: sentences, tables and figures."""
