/* What the cases share: one end of a conversation, whose other end is the same program on another host.
 *
 * The program is compiled against ndklab's headers of libibverbs, and runs with whatever libibverbs.so.1 it finds:
 * ndklab's in a node, rdma-core's in the guest.
 */
#ifndef INTEROP_VERBS_H
#define INTEROP_VERBS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "public.h"

/* A condition that does not hold ends the program, which says where. */
#define CHECK(condition)                                                                                 \
	do {                                                                                             \
		if (!(condition)) {                                                                      \
			fprintf(stderr, "%s:%d: not so: %s (errno %m)\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)

/* The same of two numbers, which it says as well. */
#define CHECK_EQUAL(got, want)                                                                           \
	do {                                                                                             \
		unsigned long long got_ = (got), want_ = (want);                                         \
		if (got_ != want_) {                                                                     \
			fprintf(stderr, "%s:%d: %s is %#llx, want %#llx (%s)\n", __FILE__, __LINE__, #got, \
				got_, want_, #want);                                                     \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)

enum {
	PORT = 1,
	MTU = 1024,   /* bytes, of the path */
	SLOT = 8192,  /* bytes, of the room for a message */
	SLOTS = 32,   /* in each area */
	READS = 4,    /* READs and atomics in progress */
	QKEY = 0x1234567,
};

/* What the ends tell each other. */
struct address {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t writable; /* the address of that area */
};

struct end {
	int peer;                 /* a TCP connection to the other end */
	bool first;               /* this end begins */
	enum ibv_qp_type type;
	uint8_t gid_index;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *sent, *received; /* areas of SLOTS slots each, to post requests and receives with */
	uint8_t *writable;        /* the area that the peer may write to */
	struct address here, there;
};

/* A case runs at both ends at once, with an end that is connected (of UD: ready to send). */
struct test {
	const char *name;
	enum ibv_qp_type type;
	int access; /* of the memory, for the peer */
	void (*run)(struct end *end);
};

extern const struct test connected_cases[], datagram_cases[]; /* up to one without a name */

void open_end(struct end *end, const struct test *test, const union ibv_gid *gid);
void connect_end(struct end *end);
void close_end(struct end *end);

/* Posts receives of length bytes in the first slots; their wr_id counts from 0. */
void post_receives(struct end *end, int count, uint32_t length);

/* Posts a request, whose data is in a slot of what is sent. One returns what ibv_post_send returns. */
int try_post(struct end *end, struct ibv_send_wr *request, int slot, uint32_t length);
void post(struct end *end, struct ibv_send_wr *request, int slot, uint32_t length);

/* Waits for the next completion. */
struct ibv_wc completion(struct end *end);

/* Waits for the next completion, which must be a success. */
struct ibv_wc success(struct end *end);

/* Returns when the other end has called it, too. */
void meet(struct end *end);

/* The bytes of a message: different ones for each end and message. */
void fill(uint8_t *bytes, uint32_t length, int message, bool first);
void check(const uint8_t *bytes, uint32_t length, int message, bool first);

#endif
