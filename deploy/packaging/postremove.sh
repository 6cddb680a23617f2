#!/bin/sh
set -e
# What was enabled does not outlive the package: a link to a unit that is not there any more
# would be started again by the next installation. Debian says "purge", RPM 0.
case "$1" in
purge | 0)
	for link in "${DPKG_ROOT:-}"/etc/systemd/system/*/leaderelect@*.service; do
		if [ -L "$link" ]; then rm -f "$link"; fi
	done
	;;
esac
# systemd forgets the unit. In a container, or a root that is being made, there is none.
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
