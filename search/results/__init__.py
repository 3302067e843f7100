"""Results of searches, computed from their records: functions that write nothing."""
