#!/bin/sh
# First process of the guest: the host's root under a tmpfs, then the job, then its result and the kernel's log.
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in /mod/*.ko; do [ -e "$m" ] && insmod "$m"; done
mkdir -p /ro /rw /new /k
mount -t virtiofs -o ro rootfs /ro && mount -t tmpfs -o size=80% tmpfs /rw && mkdir /rw/u /rw/w &&
  mount -t overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w overlay /new || poweroff -f
mount -t proc proc /new/proc; mount -t sysfs sys /new/sys; mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm /new/dev/pts /new/lib/modules; mount -t devpts devpts /new/dev/pts
. /paths # sets $modules and the numbered list of kept directories
mount --bind "/new$modules" /new/lib/modules
keep() { mkdir -p "/k/$1"; mount --bind "/new$2" "/k/$1"; }
kept
for d in dev/shm tmp run var/tmp; do mount -t tmpfs -o size=80% tmpfs "/new/$d"; done
keep() { [ -e "/new$2" ] || { mkdir -p "/new$2"; mount --bind "/k/$1" "/new$2"; }; }
kept
mkdir -p /new/out; mount -t virtiofs outfs /new/out; cp /job /new/run/testvm-job
echo 120 > /proc/sys/kernel/hung_task_timeout_secs; echo 1 > /proc/sys/kernel/panic_on_oops
ip link set lo up
: > /new/out/begun
chroot /new /bin/sh /run/testvm-job < /dev/null > /dev/vport0p1 2>&1
echo $? > /new/out/rc; dmesg > /new/out/kernel.log; poweroff -f
