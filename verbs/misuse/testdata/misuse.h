/* What the cases share: a program that has two queue pairs of reliable connections, each connected to the other, in
 * the node that it runs in. A case is a function that returns when all went as it should. */
#ifndef MISUSE_H
#define MISUSE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A condition that does not hold ends the program, which says where. */
#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

#define SIZE 65536 /* of the memory of an end, bytes */
#define DEPTH 16   /* of its queues */

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

/* What one end tells the other. */
struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t memory;
};

struct ibv_context *open_device(void);

/* Whether the engine is in a process of its own, which serves children as well. */
bool engine_is_apart(void);

/* Makes an end in a context, with memory of mmap, and a queue pair in Init. */
void make_end(struct end *end, struct ibv_context *context);
void close_end(struct end *end);
struct address address_of(struct end *end);

/* Takes a queue pair from Init to Ready to Send. */
void connect_end(struct end *end, struct address peer);

/* Two ends that are connected to each other. */
void make_pair(struct end pair[2]);

/* Posts one request of length bytes from the beginning of the memory; of WRITE, READ and atomics, to that of the
 * other end. */
int post(struct end *end, struct address to, enum ibv_wr_opcode opcode, uint32_t length);
int post_receive(struct end *end, uint32_t length);

/* Waits for the next completion. */
struct ibv_wc await_completion(struct ibv_cq *cq);

/* Sends a message from one end to the other, and compares it: the device works. */
void exchange(struct end pair[2]);

/* Calls f in a child, and returns how that ended, as waitpid(2) tells. */
int in_child(void (*f)(void *), void *argument);

/* A completion with another status ends the program, which says which. */
#define CHECK_STATUS(wc, wanted)                                                                                   \
	do {                                                                                                       \
		enum ibv_wc_status status_ = (wc).status;                                                          \
		if (status_ != (wanted)) {                                                                         \
			fprintf(stderr, "%s:%d: %s, not %s\n", __FILE__, __LINE__, ibv_wc_status_str(status_),     \
				ibv_wc_status_str(wanted));                                                        \
			exit(1);                                                                                   \
		}                                                                                                  \
	} while (0)

struct group {
	const char *name;
	void (*run)(void);
};

extern const struct group posting_cases[], memory_cases[], order_cases[], fork_cases[], signal_cases[],
	thread_cases[], limit_cases[], end_cases[], region_cases[], event_cases[], apart_cases[];

#endif
