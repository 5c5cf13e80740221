/* What libibverbs.so.1 (remote.c, queues.c) and the engine in a process of its own (verbs/rnic) say to each other.
 *
 * They share a socket and memory. Each function of engine.h that is not of the data path is a call: one datagram with its
 * arguments, data and descriptors, and one with the answer. Work requests and completions go through rings in
 * memory, so that posting and polling take no system call while both are awake. What was posted is done
 * before a call that comes after it.
 */
#ifndef NDKLAB_REMOTE_H
#define NDKLAB_REMOTE_H

#include <pthread.h>
#include <stdint.h>
#include "engine.h"

/* The descriptors that the process is started with. */
#define REMOTE_SOCKET 3

#define REMOTE_MAX_DATA 65536 /* of a call or answer, bytes: a command of rdma_cm is the longest */
#define REMOTE_MAX_FILES 2

enum remote_function {
	REMOTE_HELLO, /* data: the folder of the engine's library; files: the memory of posts, a doorbell */
	REMOTE_OPEN,
	REMOTE_CLOSE,
	REMOTE_QUERY_DEVICE,
	REMOTE_QUERY_PORT,
	REMOTE_QUERY_GIDS,
	REMOTE_NODE_GUID,
	REMOTE_CLOCK,
	REMOTE_ALLOC_PD,
	REMOTE_DEALLOC_PD,
	REMOTE_REG_MR,
	REMOTE_REREG_MR,
	REMOTE_DEREG_MR,
	REMOTE_ALLOC_MW,
	REMOTE_DEALLOC_MW,
	REMOTE_CREATE_CQ, /* files: the ring's memory and, if the CQ has one, its channel */
	REMOTE_RESIZE_CQ, /* files: the new ring's memory */
	REMOTE_DESTROY_CQ,
	REMOTE_CREATE_SRQ,
	REMOTE_MODIFY_SRQ,
	REMOTE_QUERY_SRQ,
	REMOTE_DESTROY_SRQ,
	REMOTE_CREATE_AH,
	REMOTE_DESTROY_AH,
	REMOTE_CREATE_QP,
	REMOTE_MODIFY_QP,
	REMOTE_QUERY_QP,
	REMOTE_DESTROY_QP,
	REMOTE_ATTACH_MCAST,
	REMOTE_DETACH_MCAST,
	REMOTE_OPEN_CHANNEL,
	REMOTE_CLOSE_CHANNEL,
	REMOTE_COMMAND,
	REMOTE_BIND, /* data: a remote_post, whose request binds a window */
	REMOTE_HOLD_EVENTS, /* files: the one that events go to */
};

struct remote_call {
	uint32_t function;
	uint32_t size; /* of the data behind it, bytes */
	int32_t pid;   /* of the caller, whose memory it may name */
	uint32_t room; /* for the answer's data, bytes */
	uint64_t argument[6];
	uint32_t number; /* which the answer has, too */
};

struct remote_answer {
	int64_t status; /* what the function returns */
	uint32_t size;	/* of the data behind it, bytes */
	uint32_t number; /* of the call */
	uint64_t value[2];
};

enum remote_queue { REMOTE_SEND, REMOTE_RECEIVE, REMOTE_SRQ_RECEIVE };

/* A work request in the ring of posts. Its SGEs are behind it or, with IBV_SEND_INLINE, its data. Its wr_id is the
 * library's own; what it points to is named by handles. */
struct remote_post {
	uint32_t size; /* with what is behind it, a multiple of 8; 0: the ring goes on at its beginning */
	uint32_t queue; /* enum remote_queue */
	uint64_t object; /* of the QP or SRQ */
	uint32_t ah; /* 0 where there is none */
	uint32_t mw, mr; /* of REMOTE_BIND; mr is 0 where there is none */
	uint32_t inline_size;
	struct ibv_send_wr wr; /* of a receive: wr_id and num_sge alone */
};

#define REMOTE_POSTS_SIZE (4u << 20)

/* The ring of posts. Positions count bytes, and wrap with the type. */
struct remote_posts {
	pthread_mutex_t lock; /* who posts or calls holds it; robust and shared between processes */
	uint32_t called;      /* the number of the last call; the lock guards it */
	uint32_t produced;    /* written by the library; atomic */
	uint32_t consumed;    /* written by the engine's process; atomic */
	uint32_t asleep;      /* the engine's process waits for the doorbell; atomic */
	uint32_t completed;   /* completions that were put into rings; written by the engine's process; atomic */
	uint32_t awaited;     /* somebody waits for that to change (futex(2)); atomic */
	_Alignas(8) char ring[REMOTE_POSTS_SIZE];
};

enum remote_arming { REMOTE_UNARMED, REMOTE_ARMED_SOLICITED, REMOTE_ARMED_ANY };

struct remote_completion {
	struct ibv_wc wc;
	uint64_t at; /* when it was, by the device's clock */
};

/* The ring of completions of a CQ. */
struct remote_completions {
	pthread_mutex_t lock; /* who polls holds it; robust and shared between processes */
	uint32_t size;	      /* entries, a power of 2 */
	uint32_t produced;    /* written by the engine's process; atomic */
	uint32_t consumed;    /* written by the library; atomic */
	uint32_t full;	      /* the engine's process waits for room, and for the doorbell; atomic */
	uint32_t armed;	      /* enum remote_arming; atomic */
	struct remote_completion completion[];
};

static inline uint64_t remote_completions_bytes(uint32_t size)
{
	return sizeof(struct remote_completions) + (uint64_t)size * sizeof(struct remote_completion);
}

#endif
