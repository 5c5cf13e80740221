/* What the library's files share. Start reading at device.c; load.c says how calls reach the engine.
 *
 * Each object is a structure of the ABI that programs see, ROOM zero bytes, and what is ours behind them. The
 * zeros are there for vendors' libraries (libmlx5, libefa), which look behind an object for their own tables
 * to learn whether it is theirs.
 */
#ifndef NDKLAB_LIB_H
#define NDKLAB_LIB_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include "abi.h"
#include "engine.h"

#define ROOM 256

/* Most GIDs that a port has. */
#define MAX_GIDS 256

#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

struct context {
	struct verbs_context verbs;
	char room[ROOM];
	const struct engine *engine;
	bool apart; /* the engine is in a process of its own */
	uint64_t handle;
	struct ibv_device_attr_ex device;
	unsigned int generation; /* of the process that opened it: load.c */
	int async_fd;		 /* our end, which the engine writes to */
	pid_t opener;		 /* the process that is told of what the engine cannot tell */
	bool failure_told;	 /* guarded by the list's lock: device.c */
	pthread_mutex_t taking;	 /* held to take an event from the program's end and count it: channel.c */
	struct context *next;	 /* guarded by the list's lock: device.c */
};

struct pd {
	struct ibv_pd pd;
	char room[ROOM];
	uint64_t handle;
	unsigned int users; /* objects made with it; atomic */
	struct pd *parent;  /* of a parent domain: the domain that it stands for, else NULL */
	struct td *td;
};

struct td {
	struct ibv_td td;
	char room[ROOM];
	unsigned int users; /* parent domains made with it; atomic */
};

struct mr {
	struct ibv_mr mr;
	char room[ROOM];
	uint64_t handle;
	struct dm *dm; /* whose memory it is of, or NULL */
};

struct dm {
	struct ibv_dm dm;
	char room[ROOM];
	char *memory;
	size_t length;
	unsigned int users; /* memory regions of it; atomic */
};

struct mw {
	struct ibv_mw mw;
	char room[ROOM];
	uint64_t handle;
};

struct ah {
	struct ibv_ah ah;
	char room[ROOM];
	uint64_t handle;
};

struct channel {
	struct ibv_comp_channel channel;
	char room[ROOM];
	int fd;			/* our end, which the engine writes to */
	pthread_mutex_t taking; /* as the context's; guards channel.refcnt, too */
};

/* Events that a program got and has to acknowledge are counted under the object's own mutex. */
struct cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	char room[ROOM];
	uint64_t handle;
	uint32_t comp_events;
	uint32_t async_events;
	struct pd *parent;	 /* the parent domain that it was made in, or NULL */
	pthread_mutex_t polling; /* held from start_poll to end_poll: poll.c */
	struct ibv_wc wc;	 /* what read_* tell of */
	uint64_t at;		 /* and when it was, by the device's clock, ns */
};

struct srq {
	struct ibv_srq srq;
	char room[ROOM];
	uint64_t handle;
	uint32_t async_events;
};

struct batch;

struct qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	char room[ROOM];
	uint64_t handle;
	uint32_t async_events;
	int sq_sig_all;
	struct ibv_qp_cap cap;
	struct batch *batch; /* of ibv_wr_start: wr.c; NULL where the QP was not made for it */
	struct engine_queues *queues; /* workqueue.c; NULL before it is posted to often; atomic */
	unsigned int posts;	      /* before; atomic */
	pthread_mutex_t sending, receiving; /* of who posts, by a call or to the queues */
};

static inline struct context *to_context(struct ibv_context *context)
{
	return container_of(context, struct context, verbs.context);
}

/* Every other object begins with its structure of the ABI. */
#define to_pd(p) ((struct pd *)(p))
#define to_td(p) ((struct td *)(p))
#define to_mr(p) ((struct mr *)(p))
#define to_dm(p) ((struct dm *)(p))
#define to_mw(p) ((struct mw *)(p))
#define to_ah(p) ((struct ah *)(p))
#define to_channel(p) ((struct channel *)(p))
#define to_cq(p) ((struct cq *)(p))
#define to_srq(p) ((struct srq *)(p))
#define to_qp(p) ((struct qp *)(p))

/* load.c */

/* Loads the engine where it is not loaded, or not since the last fork. Without it: NULL, and errno as engine.h has
 * it, or EMFILE, ENOMEM or EAGAIN. */
const struct engine *load_engine(void);

/* Whether the engine is in a process of its own. */
bool is_apart(const struct engine *engine);

/* The number of forks since an engine was first loaded. Written by a child before it has threads. */
extern unsigned int generation;

/* Says once per process that it uses what its parent opened. Returns EIO. */
int refuse_inherited(void);

/* EIO for what was opened before a fork, else 0. */
static inline int check_context(struct ibv_context *context)
{
	return to_context(context)->generation == generation ? 0 : refuse_inherited();
}

/* Blocks the signals that must not be handled inside the engine. */
extern sigset_t engine_blocks;

/* The result of function of the engine of an ibv_context, with signals blocked: a handler without SA_ONSTACK
 * would run on a goroutine's stack, which is too small. sigprocmask is, on Linux, the calling thread's. */
#define CALL_ENGINE(engine_, function, ...)                             \
	({                                                              \
		sigset_t before_;                                       \
		sigprocmask(SIG_BLOCK, &engine_blocks, &before_);       \
		__typeof__((engine_)->function(__VA_ARGS__)) result_ =  \
			(engine_)->function(__VA_ARGS__);               \
		sigprocmask(SIG_SETMASK, &before_, NULL);               \
		result_;                                                \
	})
#define CALL(context, function, ...) CALL_ENGINE(to_context(context)->engine, function, __VA_ARGS__)

/* As CALL, for the functions that answer EAGAIN while they have to wait. Signals are handled in between. */
#define CALL_WAITING(context, function, ...)                                     \
	({                                                                       \
		int status_;                                                     \
		for (unsigned int try_ = 0;                                      \
		     (status_ = CALL(context, function, __VA_ARGS__)) == EAGAIN; \
		     try_++)                                                     \
			wait_before_retry(try_);                                 \
		status_;                                                         \
	})
void wait_before_retry(unsigned int retries);

/* In a child of a fork, which has one thread, each frees its locks of the threads that are not there. */
void device_forked(void); /* device.c */
void cm_forked(void);	  /* cm.c */

/* The device has failed. Each tells who waits; device_failed returns false where somebody has still to be told. */
bool device_failed(void); /* device.c */
void cm_failed(void);	  /* cm.c */

/* workqueue.c */

/* Posts a request by writing it to the QP's queue, where that can be done; else returns false. */
bool write_send(struct qp *qp, const struct ibv_send_wr *wr);
bool write_recv(struct qp *qp, const struct ibv_recv_wr *wr);

/* queues.c: of an engine in a process of its own, let go of what the engine's destroy_* has left of an object, which who
 * has an event about it may use until that is acknowledged. */
void queues_release_cq(uint64_t cq);
void queues_release_srq(uint64_t srq);
void queues_release_qp(uint64_t qp);

/* query.c */
int query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* pd.c */
struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int dealloc_td(struct ibv_td *td);
struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
void hold_pd(struct ibv_pd *pd);
void release_pd(struct ibv_pd *pd);

/* Counts of what was made with an object. */
static inline void add_user(unsigned int *users)
{
	__atomic_fetch_add(users, 1, __ATOMIC_RELAXED);
}

static inline void drop_user(unsigned int *users)
{
	__atomic_fetch_sub(users, 1, __ATOMIC_RELAXED);
}

static inline bool in_use(unsigned int *users)
{
	return __atomic_load_n(users, __ATOMIC_RELAXED);
}

/* dm.c */

/* Bytes of device memory, which each process has for itself. */
#define DEVICE_MEMORY (1 << 20)

struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int free_dm(struct ibv_dm *dm);
struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);

/* mr.c */
struct ibv_mr *register_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access);
struct ibv_mr *alloc_null_mr(struct ibv_pd *pd);
int advise_mr(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
	      uint32_t count);
struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int dealloc_mw(struct ibv_mw *mw);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* post.c */
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int poll_cq_at(struct ibv_cq *cq, int count, struct ibv_wc *wc, uint64_t *at);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* poll.c */
void set_poll_functions(struct ibv_cq_ex *cq);

/* wr.c */
struct batch *new_batch(struct ibv_qp_ex *qp);
void free_batch(struct batch *batch);

/* cq.c, qp.c */
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);

/* channel.c */

/* Makes a pair of connected sockets for events: the program's end and ours. Returns 0, or -1 and errno. */
int open_event_pair(int *program, int *ours);

/* Takes an event from the program's end, as read(2) does; taken counts it, under the lock, so that who
 * destroys an object knows all that there is to acknowledge. Returns 0, or -1 and errno. */
int take_event(int program, pthread_mutex_t *taking, void *event, size_t size, void (*taken)(void *event));

/* Removes the events that are about an object and not taken yet. */
void remove_events(struct ibv_context *context, int program, int ours, pthread_mutex_t *taking, size_t size,
		   bool (*is_about)(const void *event, uint64_t cookie), uint64_t cookie);
void remove_async_events(struct ibv_context *context, uint64_t cookie);

/* Waits until as many events are acknowledged as were taken. */
void wait_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged,
		       const uint32_t *taken);

#endif
