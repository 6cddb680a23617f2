#!/bin/sh
set -e
# systemd is told of the unit. In a container, or a root that is being made, there is none.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
