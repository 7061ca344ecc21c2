"""What `sensorium bench` measures with. Users of the SDK need none of it."""
