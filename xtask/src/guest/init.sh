#!/bin/busybox sh
# The guest's first process: runs every program of /plan, and tells the host of each, by lines that
# begin with @guest, when it begins and with which status it ends.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
echo "@guest up $(uname -srm)"

# run LIMIT NAME FOLDER PROGRAM ARGUMENTS...: at most LIMIT seconds long.
run() {
    limit=$1 name=$2 folder=$3
    shift 3
    echo "@guest begin $name"
    (cd "$folder" && exec timeout -s KILL "$limit" "$@") </dev/null 2>&1
    # On a line of its own, whatever the program wrote last.
    printf '\n@guest end %s %s\n' "$?" "$name"
}

. /plan
echo "@guest done"
poweroff -f
