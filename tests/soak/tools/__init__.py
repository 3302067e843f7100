"""What breaks things and takes it back: processes, disks, stores, networks and clocks."""
