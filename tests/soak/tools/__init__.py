"""Tools that inject faults and repair them: processes, stores, networks and clocks."""
