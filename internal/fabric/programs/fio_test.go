package programs

import (
	"testing"
)

// fio's rdma engine. The end that reads is the server; the verb is the other end's. The server can verify messages that
// are sent to it. It posts a receive again only then, and a sender that finds none fails at once (fio asks for no
// retries), so that there is one message at a time.
func TestFio(t *testing.T) {
	fit(t)
	const job = "fio --name=job --ioengine=rdma --port=7777 --bs=64k --size=4m --thread "
	var pairs []pair
	for name, options := range map[string]struct{ server, client string }{
		"write":  {"--iodepth=16", "--iodepth=16 --verb=write"},
		"read":   {"--iodepth=16", "--iodepth=16 --verb=read"},
		"send":   {"--iodepth=16 --verb=recv", "--iodepth=1 --verb=send"},
		"verify": {"--iodepth=16 --verb=recv --verify=crc32c --verify_state_save=0", "--iodepth=1 --verb=send --verify=crc32c --do_verify=0 --verify_state_save=0"},
	} {
		pairs = append(pairs, pair{
			name: name, server: job + "--rw=read " + options.server, client: job + "--rw=write --hostname=SERVER " + options.client,
			holds: []claim{serverPrints(`err= 0:`), clientPrints(`err= 0:`), clientPrints(`WRITE: .* io=4096KiB`)},
		})
	}
	runAll(t, plainLab(t), pairs)
}
