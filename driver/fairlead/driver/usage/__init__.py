"""How busy the devices of each claim are, written into the claims' statuses for the controller.

Enters: the telemetry of each poll, the records of prepared claims. Leaves: a DeviceUsage for each device in
`status.devices[].data` of its claim. `sampler` (pure) tells busy from idle, `schedule` (pure) says when a write is worth
it, `writer` reads and writes claims. Prepare and unprepare never wait for any of it.
"""
