/* Sums up vectors of growing lengths of all ranks by Gloo over libibverbs. The arguments are this rank, how many there
 * are, and a folder by which they find each other.
 */
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <unistd.h>

/* How many elements of a sum are wrong. The algorithm stays: it may have sent what is not complete when it is done, and
 * takes its end for an error then.
 */
template <class Algorithm> static int wrong(const std::shared_ptr<gloo::Context> &context, int n)
{
	auto &values = *new std::vector<float>(n);
	int wrong = 0;

	for (int i = 0; i < n; i++)
		values[i] = context->rank + i % 7;
	(new Algorithm(context, {values.data()}, n))->run();
	for (int i = 0; i < n; i++)
		wrong += values[i] != context->size * (context->size - 1) / 2 + context->size * (i % 7);
	return wrong;
}

int main(int, char **argv)
{
	gloo::transport::ibverbs::attr attr;
	attr.name = "ndk0";
	attr.port = 1;
	attr.index = 0;
	auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), atoi(argv[2]));
	gloo::rendezvous::FileStore store(argv[3]);
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	context->connectFullMesh(store, device);
	int all = 0;
	for (int n = 1; n <= 1000000; n *= 10)
		all += wrong<gloo::AllreduceRing<float>>(context, n) + wrong<gloo::AllreduceRingChunked<float>>(context, n);
	(new gloo::BarrierAllToAll(context))->run(); /* which is behind all that was sent */
	printf("rank %d of %d: %d wrong\n", context->rank, context->size, all);
	fflush(stdout);
	_exit(all != 0);
}
