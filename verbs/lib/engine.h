/* The engine: what libibverbs.so.1 calls for everything that takes an adapter.
 *
 * The library owns the structures of the ABI, descriptors and strings. The engine owns protection
 * domains, memory, queues, queue pairs and connections, which it names by handles: numbers other than
 * 0, which it checks. Those of memory regions, memory windows and address handles fit the 32 bits of the ABI. It is either in the program's process (libndklab-rnic.so) or in one of its own; the
 * library does not know which.
 *
 * Functions return 0 or an errno unless they say otherwise. They may be called from any thread. None
 * blocks: signals are blocked meanwhile. EAGAIN is the answer of those of which it says so, and means that they
 * have begun and are to be called again with the same arguments until the answer is another one. Structures ibv_* are those of abi.h, in host order but where
 * the ABI has network order.
 */
#ifndef NDKLAB_ENGINE_H
#define NDKLAB_ENGINE_H

#include <stdint.h>
#include "abi.h"

#define ENGINE_VERSION 3

/* In the flags of a completion: its peer has asked for an event. */
#define ENGINE_WC_SOLICITED (1u << 31)

/* One address of the device: the GID of the same index. */
struct engine_gid {
	uint8_t gid[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t ifindex;
	uint32_t mtu;    /* largest payload of a packet, bytes; 0 if none fits */
};

/* What is written to a completion channel's descriptor, one datagram for each event: the cookie that the
 * CQ was made with. */

/* What is written to the descriptor of asynchronous events, one datagram for each. */
struct engine_async_event {
	uint32_t type;   /* enum ibv_event_type */
	uint32_t port;   /* of port events, else 0 */
	uint64_t cookie; /* of the CQ, QP or SRQ that it is about */
};

struct engine_qp_init {
	uint64_t pd, send_cq, recv_cq, srq; /* srq may be 0 */
	uint64_t cookie;
	uint32_t type; /* enum ibv_qp_type */
	uint32_t create_flags;
	struct ibv_qp_cap cap; /* in: what is asked for; out: what there is */
	uint32_t sq_sig_all;
	uint32_t qp_num; /* out */
};

/* The memory of a QP's work queues, as adapters have it: the library writes work requests, the engine takes them. Who has
 * written one while the engine does not watch the queue rings (struct engine). Counts are since the queue was made,
 * modulo 2^32. */
#define ENGINE_WQES 64 /* a power of 2 */
#define ENGINE_SGES 2

struct engine_wqe {
	uint64_t wr_id;
	uint32_t opcode; /* of sends: SEND, RDMA_WRITE, each with or without IMM; so are the next four */
	uint32_t send_flags; /* without INLINE */
	uint32_t imm_data;   /* network order */
	uint32_t rkey;
	uint64_t remote_addr;
	uint32_t num_sge;
	struct ibv_sge sg_list[ENGINE_SGES];
};

struct engine_queue {
	uint32_t put;     /* the library's; as the next three, atomic */
	uint32_t taken;   /* the engine's; as the next two */
	uint32_t most;    /* up to which put there is room in the QP */
	uint32_t watched; /* the engine will look without being rung for */
	struct engine_wqe wqes[ENGINE_WQES];
};

struct engine_queues {
	struct engine_queue send, recv;
};

struct engine {
	uint32_t version; /* ENGINE_VERSION */
	uint32_t size;    /* of this structure */

	/* The device. async_fd, a socket's, gets the events of the context; it stays the library's. */
	int (*open)(int async_fd, uint64_t *context);
	int (*close)(uint64_t context);
	int (*query_device)(uint64_t context, struct ibv_device_attr_ex *attr);
	int (*query_port)(uint64_t context, struct ibv_port_attr *attr);
	/* Returns the number of GIDs, of which the first max are written. */
	int (*query_gids)(uint64_t context, struct engine_gid *gids, int max);
	uint64_t (*node_guid)(void); /* network order */
	uint64_t (*clock)(void);     /* the device's, ns */

	int (*alloc_pd)(uint64_t context, uint64_t *pd);
	int (*dealloc_pd)(uint64_t pd);
	/* Null memory regions have addr 0 and length UINT64_MAX, and implicit ones IBV_ACCESS_ON_DEMAND, too. */
	int (*reg_mr)(uint64_t pd, void *addr, uint64_t length, uint64_t iova, uint32_t access, uint64_t *mr, uint32_t *key);
	int (*rereg_mr)(uint64_t mr, int flags, uint64_t pd, void *addr, uint64_t length, uint32_t access, uint32_t *key);
	/* EAGAIN while somebody uses the memory, which nobody new does. */
	int (*dereg_mr)(uint64_t mr);
	int (*alloc_mw)(uint64_t pd, uint32_t type, uint64_t *mw, uint32_t *key);
	int (*dealloc_mw)(uint64_t mw);

	/* fd is a completion channel's end to write events to, or -1. */
	int (*create_cq)(uint64_t context, int cqe, int fd, uint64_t cookie, uint64_t *cq);
	int (*resize_cq)(uint64_t cq, int cqe);
	int (*destroy_cq)(uint64_t cq);
	int (*req_notify_cq)(uint64_t cq, int solicited_only);
	/* Returns the number of completions written, at most n, or -errno. at, which may be NULL, gets when each was,
	 * by the device's clock. */
	int (*poll_cq)(uint64_t cq, int n, struct ibv_wc *wc, uint64_t *at);

	int (*create_srq)(uint64_t pd, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *srq);
	int (*modify_srq)(uint64_t srq, const struct ibv_srq_attr *attr, int mask);
	int (*query_srq)(uint64_t srq, struct ibv_srq_attr *attr);
	int (*destroy_srq)(uint64_t srq);
	int (*post_srq_recv)(uint64_t srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

	int (*create_ah)(uint64_t pd, const struct ibv_ah_attr *attr, uint64_t *ah);
	int (*destroy_ah)(uint64_t ah);

	int (*create_qp)(struct engine_qp_init *init, uint64_t *qp);
	/* EAGAIN while the change waits for what is under way. */
	int (*modify_qp)(uint64_t qp, const struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(uint64_t qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
	/* EAGAIN while something of it is under way, of which nothing new begins. */
	int (*destroy_qp)(uint64_t qp);
	/* Of wr.ud.ah, of mw and of its mr in bind_mw, the engine takes the ABI's handle field. The 8 bytes of an
	 * ATOMIC_WRITE are its one SGE. */
	int (*post_send)(uint64_t qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_recv)(uint64_t qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	/* Gives a QP its work queues, as long as it is there. NULL for an engine that has queues of its own kind. */
	int (*use_queues)(uint64_t qp, struct engine_queues *queues);
	/* Has the engine look into them. */
	int (*ring)(uint64_t qp);
	int (*attach_mcast)(uint64_t qp, const uint8_t gid[16]);
	int (*detach_mcast)(uint64_t qp, const uint8_t gid[16]);

	/* rdma_cm: commands of rdma/rdma_user_cm.h for the channel that was opened, which the program has as a
	 * descriptor: MIGRATE_ID names it by that. An event is announced by a byte, one datagram, on fd;
	 * program is the other end, from which the engine takes back announcements of events that are gone. GET_EVENT is called for each announcement that
	 * was received, and is -EAGAIN if its event has gone since. Commands with responses write them where the
	 * command says. Returns the number of bytes taken, or -errno. */
	int (*open_channel)(int fd, int program, uint32_t descriptor, uint64_t *channel);
	int (*close_channel)(uint64_t channel);
	long (*command)(uint64_t channel, const void *command, uint64_t length);

	/* From now on, memory that is registered or named in commands is that of another process. It and all that it has
	 * forked are gone when socket is hung up, and the engine ends then at the latest when it needs that memory. Only an
	 * engine that serves sets ENGINE_WC_SOLICITED. */
	void (*serve)(int pid, int socket);

	/* Has the engine send no events of a context or of CQs to fd, or send them again: those that happen
	 * meanwhile wait, as they do where the socket is full. */
	int (*hold_events)(int fd, int hold);

	/* For an engine that serves: has asynchronous events about a CQ have that cookie instead of its own. */
	void (*name_cq)(uint64_t cq, uint64_t cookie);

	/* For an engine that serves: sends the event of a CQ to fd, when there is room, and drops those that wait of a
	 * CQ that is gone. */
	void (*send_event)(int fd, uint64_t cookie);
	void (*drop_events)(uint64_t cookie);
};

/* The one symbol of libndklab-rnic.so. Where there is no device it returns NULL, with errno and a message: ENODEV, or
 * ENOSPC where as many processes share the adapter as can. It may be called again then. */
const struct engine *ndklab_engine(uint32_t version, char *message, uint64_t size);

#endif
