# A target of tgt with an empty disk of 16 MiB in the folder $WORK, by iSER at port 3261. It prints "ready" when
# initiators may come. Its own tool reaches it by a socket, whose path is kept short.
cd "$WORK" && truncate -s 16M disk || exit
export TGT_IPC_SOCKET=tgtd
tgtd -f -C 0 --iser port=3261,pool_sz_mb=64 &
ask() { tgtadm -C 0 --lld iser --tid 1 "$@"; }
until ask --mode target --op new --targetname iqn.2026-01.lab:disk 2>/dev/null; do
	kill -0 $! || exit
	sleep 0.1
done
# By iSER the target admits nobody whose name it is not told. The name is that of QEMU's programs.
ask --mode logicalunit --op new --lun 1 --backing-store "$WORK/disk" &&
	ask --mode target --op bind --initiator-address ALL &&
	ask --mode target --op bind --initiator-name iqn.2008-11.org.linux-kvm &&
	echo ready
wait
