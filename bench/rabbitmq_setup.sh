#!/bin/bash
# Makes a chroot with the newest RabbitMQ that Debian carries:  rabbitmq_setup.sh FOLDER [SUITE]
# As root. SUITE: forky (RabbitMQ 4.3.6, OTP 29 in November 2026). Nothing outside FOLDER is changed
# but for the package debootstrap, which is installed when it is missing.
set -eu
ROOT=${1:?the folder for the chroot} SUITE=${2:-forky}
MIRROR=$(grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 | tr -d ' ')
MIRROR=${MIRROR:-http://deb.debian.org/debian}
export DEBIAN_FRONTEND=noninteractive
if ! command -v debootstrap >/dev/null || ! command -v curl >/dev/null || ! command -v xz >/dev/null; then
  apt-get update
  apt-get install -y --no-install-recommends debootstrap curl xz-utils
fi
if [ ! -x "$ROOT/usr/bin/apt-get" ]; then
  # the suite's own keyring: an older Debian does not know its key
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  package=$(curl -fsS "$MIRROR/dists/$SUITE/main/binary-$(dpkg --print-architecture)/Packages.xz" | xz -dc |
    awk '/^Package: debian-archive-keyring$/ {found = 1} found && /^Filename:/ {print $2; exit}')
  curl -fsS -o "$work/keyring.deb" "$MIRROR/$package"
  dpkg-deb -x "$work/keyring.deb" "$work"
  script=/usr/share/debootstrap/scripts/$SUITE
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  keyring=$(ls "$work"/usr/share/keyrings/debian-archive-keyring.* | head -1)
  debootstrap --keyring="$keyring" --variant=minbase "$SUITE" "$ROOT" "$MIRROR" "$script"
  printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"  # no service is to be started
  chmod +x "$ROOT/usr/sbin/policy-rc.d"
  echo "127.0.0.1 localhost" > "$ROOT/etc/hosts"
fi
mountpoint -q "$ROOT/proc" || mount -t proc proc "$ROOT/proc"
mountpoint -q "$ROOT/dev" || mount --rbind /dev "$ROOT/dev"
mount --make-rslave "$ROOT/dev"
chroot "$ROOT" sh -c 'apt-get update && apt-get install -y --no-install-recommends rabbitmq-server'
