/* What remote.c and queues.c share: the library's half of remote.h. */
#ifndef NDKLAB_REMOTE_LIB_H
#define NDKLAB_REMOTE_LIB_H

#include <stdbool.h>
#include <stdio.h>
#include "lib.h"
#include "remote.h"

/* Starts the engine's process, by the path of its program, with the engine at another. Returns 0 and the engine, or an
 * errno and a message. */
int start_remote(const char *path, const char *engine_path, const struct engine **engine, char *message, size_t size);

/* Runs in a child of a fork, which goes on with the same process. */
void remote_forked(void);

/* What there is of the process. Written as it is started, before the engine is used. */
struct remote {
	int socket;
	int doorbell;
	pid_t pid; /* 0 where there is none */
	struct remote_posts *posts;
	bool ended; /* it is known not to be there; atomic */
};
extern struct remote remote;

/* remote.c: the functions of engine.h, and the first call, which has a message where it fails. Returns 0 or an errno. */
extern const struct engine remote_engine;
int greet_remote(int memory, const char *engine_path, char *message, size_t size);

/* Locks between processes. */
void lock_shared(pthread_mutex_t *lock);
int init_shared(pthread_mutex_t *lock);

/* Memory for another process to map by fd, or NULL and errno. */
void *share_memory(uint64_t size, int *fd);

/* Wakes the engine's process. */
void ring_doorbell(void);

/* ended.c */

/* Whether the engine's process has ended. */
bool remote_ended(void);

/* Has a thread of this process tell it of that. */
void watch_remote(void);

/* What a command of rdma_cm returns then. */
long command_ended(const void *command, uint64_t length);

/* The calls of the engine.h functions that queues.c has more to do for. */
int remote_create_cq(uint64_t context, int cqe, int ring, int channel, uint64_t cookie, uint64_t *cq);
int remote_resize_cq(uint64_t cq, int cqe, int ring);
int remote_destroy_cq(uint64_t cq);
int remote_create_srq(uint64_t pd, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *srq);
int remote_modify_srq(uint64_t srq, const struct ibv_srq_attr *attr, int mask);
int remote_query_srq(uint64_t srq, struct ibv_srq_attr *attr);
int remote_destroy_srq(uint64_t srq);
int remote_create_qp(struct engine_qp_init *init, uint64_t *qp);
int remote_modify_qp(uint64_t qp, const struct ibv_qp_attr *attr, int mask);
int remote_query_qp(uint64_t qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int remote_destroy_qp(uint64_t qp);

/* Has the engine post a request that binds a window, which gets the key; its errno. The lock of posts is held. */
int remote_bind(const struct remote_post *post, uint32_t *key);
int remote_mcast(bool attach, uint64_t qp, const uint8_t gid[16]);

/* A send, receive or shared receive queue. */
struct work {
	uint32_t id; /* what it is called in a wr_id: the upper half, the place is the lower one. Never 0 */
	uint32_t depth;
	uint64_t *ids; /* the program's, by place */
	/* In order, of which posted - retired are under way: */
	uint64_t posted;
	uint64_t retired;
	/* Or, of a shared queue, places that are free: */
	uint32_t *free;
	uint32_t free_count;
	struct work *next; /* in its list of works */
};

struct remote_cq {
	uint64_t handle;
	struct remote_completions *ring; /* changed under its lock */
	struct remote_completions *old;	 /* a ring that somebody may still wait for the lock of, or NULL */
	uint32_t vain;			 /* polls that found nothing; atomic */
	int channel;			 /* to write events to, or -1 */
	uint64_t cookie;		 /* of events */
	struct remote_cq *next;
};

struct remote_srq {
	uint64_t handle;
	uint32_t max_sge;
	struct work work;
};

struct remote_qp {
	uint64_t handle;
	enum ibv_qp_type type;
	enum ibv_qp_state state; /* that the program asked for; atomic */
	uint8_t reads;		 /* and atomics that may be outstanding; atomic */
	uint32_t number;
	uint64_t pd;
	struct ibv_qp_cap cap;
	struct remote_cq *send_cq, *recv_cq;
	struct work send, recv; /* recv.depth is 0 with an SRQ */
};

/* Takes a place for a work request, and its name; false if there is none. */
bool take_place(struct work *work, uint64_t wr_id, uint64_t *name);

/* Gives back the place of an ordered queue that was taken last, under the same lock of posts. */
void return_place(struct work *work);

/* check.c */

/* The errno that posting the request has by itself, or 0. */
int check_send(const struct remote_qp *qp, const struct ibv_send_wr *wr);

/* The bytes of a request's SGEs, of which there are not too many. */
uint64_t data_length(const struct ibv_send_wr *wr);

/* An address handle that requests may have. Returns ENOMEM where there is no memory to note it. */
int note_address(uint32_t handle, uint64_t pd);
void forget_address(uint32_t handle);

/* In a child of a fork, which has one thread. */
void check_forked(void);

/* In a child of a fork, which has one thread. */
void queues_forked(void);

/* The engine's process has ended: wakes who waits for completions. */
void queues_failed(void);

/* queues.c and posts.c: functions of engine.h. */
int queues_create_cq(uint64_t context, int cqe, int fd, uint64_t cookie, uint64_t *cq);
int queues_resize_cq(uint64_t cq, int cqe);
int queues_destroy_cq(uint64_t cq);
int queues_req_notify_cq(uint64_t cq, int solicited_only);
int queues_poll_cq(uint64_t cq, int n, struct ibv_wc *wc, uint64_t *at);
int queues_create_srq(uint64_t pd, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *srq);
int queues_modify_srq(uint64_t srq, const struct ibv_srq_attr *attr, int mask);
int queues_query_srq(uint64_t srq, struct ibv_srq_attr *attr);
int queues_destroy_srq(uint64_t srq);
int queues_post_srq_recv(uint64_t srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int queues_create_qp(struct engine_qp_init *init, uint64_t *qp);
int queues_modify_qp(uint64_t qp, const struct ibv_qp_attr *attr, int mask);
int queues_query_qp(uint64_t qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int queues_destroy_qp(uint64_t qp);
int queues_post_send(uint64_t qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int queues_post_recv(uint64_t qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int queues_attach_mcast(uint64_t qp, const uint8_t gid[16]);
int queues_detach_mcast(uint64_t qp, const uint8_t gid[16]);

#endif
