#!/bin/sh
set -e
# The candidates hand over before their program goes: not when it is upgraded, where they
# go on with what they have loaded until they are restarted. Debian says "remove", RPM 0.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl stop 'leaderelect@*.service' || true
	fi
	;;
esac
