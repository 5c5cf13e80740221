/* all-reduce [-s BYTES] [-n ROUNDS]: one of several programs that add up a vector around a ring, as NCCL does between
 * machines: each sends to the next by a reliable connection of librdmacm and receives from the one before. First a piece
 * of the vector travels from every program around the ring and grows into a sum, then the sums travel once more.
 *
 * A workload of ndklab tells it in the environment who takes part (NDKLAB_NODE, NDKLAB_PEERS). The first of them prints
 * what went over each of the ring's connections, as the programs of ibverbs-utils do. Every sum is checked.
 *
 *   cc -O2 -o bin/all-reduce examples/all-reduce/all-reduce.c -lrdmacm -libverbs
 */
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PORT "7471"
#define TRIES 200 /* of connecting, 50 ms apart: the next program may not listen yet */

static struct rdma_cm_id *to, *from; /* the next of the ring and the one before */

static void fail(const char *what)
{
	fprintf(stderr, "all-reduce: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Who takes part, in the order of the ring, and which of them this is. */
static int members(char **names, int most, int *rank)
{
	char *self = getenv("NDKLAB_NODE"), *peers = getenv("NDKLAB_PEERS");
	int n = 0;

	if (!self || !peers) {
		errno = EINVAL;
		fail("NDKLAB_NODE and NDKLAB_PEERS");
	}
	names[n++] = self;
	for (char *name = strtok(peers, " "); name && n < most; name = strtok(NULL, " "))
		names[n++] = name;
	qsort(names, n, sizeof(*names), by_name);
	for (*rank = 0; names[*rank] != self; ++*rank)
		;
	return n;
}

/* An endpoint with a queue pair, for connecting to a node, or without a name for listening. */
static struct rdma_cm_id *endpoint(const char *name)
{
	struct rdma_addrinfo hints = { .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	hints.ai_flags = name ? 0 : RAI_PASSIVE;
	if (rdma_getaddrinfo(name, PORT, &hints, &found))
		fail("rdma_getaddrinfo");
	if (rdma_create_ep(&id, found, NULL, &attr))
		fail("rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* Accepts a connection. Whose request was refused, before anybody listened, and comes once more, as requests do that are
 * not answered soon, has gone on to another. */
static void accept_one(struct rdma_cm_id *listener, struct rdma_conn_param *param)
{
	for (;;) {
		if (rdma_get_request(listener, &from))
			fail("rdma_get_request");
		if (!rdma_accept(from, param))
			return;
		if (errno != ECONNREFUSED)
			fail("rdma_accept");
		rdma_destroy_ep(from);
	}
}

/* Connects the ring. The even ones connect first, and the odd ones accept: so nobody waits for somebody who waits. */
static void connect_ring(const char *next, int even, int n)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener = endpoint(NULL);

	if (rdma_listen(listener, n))
		fail("rdma_listen");
	for (int step = 0; step < 2; step++) {
		if (step == !even) {
			for (int i = 0; to = endpoint(next), rdma_connect(to, &param); i++) {
				if (i == TRIES)
					fail(next);
				rdma_destroy_ep(to);
				usleep(50000);
			}
		} else {
			accept_one(listener, &param);
		}
	}
	rdma_destroy_ep(listener);
}

static void await_completion(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	if (get(id, &wc) <= 0)
		fail("completion");
	if (wc.status) {
		fprintf(stderr, "all-reduce: completion: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

/* Sends a piece to the next program while one of the same size arrives from the one before. */
static void exchange(int32_t *out, struct ibv_mr *out_mr, int32_t *in, struct ibv_mr *in_mr, size_t size)
{
	if (rdma_post_recv(from, NULL, in, size, in_mr) || rdma_post_send(to, NULL, out, size, out_mr, 0))
		fail("post");
	await_completion(rdma_get_recv_comp, from);
	await_completion(rdma_get_send_comp, to);
}

int main(int argc, char **argv)
{
	char *names[64];
	int rank, n = members(names, 64, &rank), rounds = 20, option, wrong = 0;
	size_t bytes = 1 << 20;

	while ((option = getopt(argc, argv, "s:n:")) != -1) {
		if (option == 's')
			bytes = strtoul(optarg, NULL, 0);
		else if (option == 'n')
			rounds = atoi(optarg);
		else
			return 2;
	}
	size_t words = bytes / sizeof(int32_t) / n, size = words * sizeof(int32_t); /* of a piece */
	int32_t *vector = calloc(n, size), *arriving = calloc(1, size);

	if (!size || !vector || !arriving) {
		errno = size ? ENOMEM : EINVAL;
		fail("memory");
	}
	connect_ring(names[(rank + 1) % n], rank % 2 == 0, n);
	struct ibv_mr *out_mr = rdma_reg_msgs(to, vector, n * size), *sum_mr = rdma_reg_msgs(from, vector, n * size);
	struct ibv_mr *in_mr = rdma_reg_msgs(from, arriving, size);
	struct timespec begin, end;

	if (!out_mr || !sum_mr || !in_mr)
		fail("rdma_reg_msgs");
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int round = 0; round < rounds; round++) {
		for (size_t i = 0; i < n * words; i++)
			vector[i] = rank + (int32_t)i + round;
		for (int step = 0; step < n - 1; step++) { /* the pieces grow */
			int32_t *mine = vector + (rank - step + n) % n * words, *sum = vector + (rank - step - 1 + n) % n * words;

			exchange(mine, out_mr, arriving, in_mr, size);
			for (size_t i = 0; i < words; i++)
				sum[i] += arriving[i];
		}
		for (int step = 0; step < n - 1; step++) /* and are handed on */
			exchange(vector + (rank - step + 1 + n) % n * words, out_mr, vector + (rank - step + n) % n * words, sum_mr, size);
		for (size_t i = 0; i < n * words; i++)
			wrong += vector[i] != n * (n - 1) / 2 + n * ((int32_t)i + round);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (!rank) {
		double seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
		size_t sent = 2 * (n - 1) * size * rounds;

		printf("%zu bytes in %.2f seconds = %.2f Mbit/sec\n", sent, seconds, sent * 8 / seconds / 1e6);
		printf("%d iters in %.2f seconds = %.2f usec/iter\n", rounds, seconds, seconds / rounds * 1e6);
	}
	if (wrong)
		fprintf(stderr, "all-reduce: %d elements are wrong\n", wrong);
	rdma_disconnect(to);
	return wrong != 0;
}
