/* See stub.h. Handles are consecutive numbers. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include "stub.h"

struct stub stub;
static uint64_t handles; /* atomic */
static pthread_mutex_t entering = PTHREAD_MUTEX_INITIALIZER;

/* Records a call. Returns what a test wants of it. */
static int enter(const char *function)
{
	int status = 0;
	sigset_t now;

	pthread_mutex_lock(&entering);
	stub.calls++;
	snprintf(stub.last, sizeof(stub.last), "%s", function);
	sigprocmask(SIG_BLOCK, NULL, &now);
	if (!sigismember(&now, SIGALRM) || sigismember(&now, SIGSEGV))
		stub.interruptible++;
	if (!strcmp(stub.failing, function) && stub.times) {
		stub.times--;
		status = stub.status;
	}
	pthread_mutex_unlock(&entering);
	return status;
}

/* Threads make objects at once; what is recorded of them is read when there is one. */
#define RECORD(field, value) __atomic_store_n(&stub.field, value, __ATOMIC_RELAXED)

#define ENTER                                 \
	do {                                  \
		int status_ = enter(__func__); \
		if (status_)                  \
			return status_;       \
	} while (0)

static int make(uint64_t *handle)
{
	*handle = __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED);
	return 0;
}

#define UNUSED __attribute__((unused))

static int open_(int async_fd, uint64_t *context)
{
	int status = enter("open");

	RECORD(async_fd, async_fd);
	return status ? status : make(context);
}

static int close_(uint64_t context UNUSED)
{
	return enter("close");
}

static int query_device(uint64_t context UNUSED, struct ibv_device_attr_ex *attr)
{
	ENTER;
	strcpy(attr->orig_attr.fw_ver, "stub");
	attr->orig_attr.max_qp = 1234;
	attr->orig_attr.phys_port_cnt = 1;
	attr->phys_port_cnt_ex = 1;
	return 0;
}

static int query_port(uint64_t context UNUSED, struct ibv_port_attr *attr)
{
	ENTER;
	attr->state = IBV_PORT_ACTIVE;
	attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = 16;
	attr->pkey_tbl_len = 1;
	attr->active_width = 2;
	attr->active_speed = 32;
	attr->phys_state = 5;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	attr->port_cap_flags2 = 4;
	return 0;
}

static int query_gids(uint64_t context UNUSED, struct engine_gid *gids, int max)
{
	static const struct engine_gid known[2] = {
		{ .gid = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 }, .ifindex = 7, .mtu = 4096 },
		{ .gid = { 0xfe, 0x80, [15] = 1 }, .ifindex = 7, .mtu = 4096 },
	};

	enter(__func__);
	memcpy(gids, known, sizeof(known[0]) * (max < 2 ? max : 2));
	return 2;
}

static uint64_t node_guid(void)
{
	enter(__func__);
	return 0x0102030405060708;
}

static int alloc_pd(uint64_t context UNUSED, uint64_t *pd)
{
	ENTER;
	return make(pd);
}

static int dealloc_pd(uint64_t pd UNUSED)
{
	return enter(__func__);
}

static int reg_mr(uint64_t pd UNUSED, void *addr UNUSED, uint64_t length UNUSED, uint64_t iova UNUSED, uint32_t access,
		  uint64_t *mr, uint32_t *key)
{
	ENTER;
	*key = 0x1000 + access;
	return make(mr);
}

static int rereg_mr(uint64_t mr UNUSED, int flags, uint64_t pd UNUSED, void *addr UNUSED, uint64_t length UNUSED,
		    uint32_t access UNUSED, uint32_t *key)
{
	ENTER;
	*key = 0x2000 + flags;
	return 0;
}

static int dereg_mr(uint64_t mr UNUSED)
{
	return enter(__func__);
}

static int alloc_mw(uint64_t pd UNUSED, uint32_t type UNUSED, uint64_t *mw, uint32_t *key)
{
	ENTER;
	*key = 0x30ff;
	return make(mw);
}

static int dealloc_mw(uint64_t mw UNUSED)
{
	return enter(__func__);
}

static int create_cq(uint64_t context UNUSED, int cqe UNUSED, int fd, uint64_t cookie, uint64_t *cq)
{
	ENTER;
	RECORD(comp_fd, fd);
	RECORD(cq_cookie, cookie);
	return make(cq);
}

static int resize_cq(uint64_t cq UNUSED, int cqe UNUSED)
{
	return enter(__func__);
}

static int destroy_cq(uint64_t cq UNUSED)
{
	return enter(__func__);
}

static int req_notify_cq(uint64_t cq UNUSED, int solicited_only UNUSED)
{
	return enter(__func__);
}

static int poll_cq(uint64_t cq UNUSED, int n, struct ibv_wc *wc, uint64_t *at)
{
	int status = enter(__func__);

	if (status)
		return -status;
	n = n < stub.completions ? n : stub.completions;
	memcpy(wc, stub.wc, n * sizeof(*wc));
	for (int i = 0; at && i < n; i++)
		at[i] = 1000 + stub.wc[i].wr_id;
	stub.completions -= n;
	memmove(stub.wc, stub.wc + n, stub.completions * sizeof(*wc));
	return n;
}

static int create_srq(uint64_t pd UNUSED, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *srq)
{
	ENTER;
	RECORD(srq_cookie, cookie);
	attr->max_wr = 128;
	return make(srq);
}

static int modify_srq(uint64_t srq UNUSED, const struct ibv_srq_attr *attr UNUSED, int mask UNUSED)
{
	return enter(__func__);
}

static int query_srq(uint64_t srq UNUSED, struct ibv_srq_attr *attr)
{
	ENTER;
	*attr = (struct ibv_srq_attr){ .max_wr = 128, .max_sge = 1 };
	return 0;
}

static int destroy_srq(uint64_t srq UNUSED)
{
	return enter(__func__);
}

/* Only of a test that asks for them. */
static int use_queues(uint64_t qp UNUSED, struct engine_queues *queues)
{
	ENTER;
	if (!stub.on_ring)
		return EINVAL;
	stub.queues = queues;
	return 0;
}

static int ring(uint64_t qp UNUSED)
{
	ENTER;
	stub.on_ring();
	return 0;
}

static int post_recv(uint64_t qp UNUSED, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int status = enter(__func__);

	if (stub.on_recv)
		stub.on_recv(wr);

	if (status)
		*bad = wr;
	return status;
}

static int create_ah(uint64_t pd UNUSED, const struct ibv_ah_attr *attr UNUSED, uint64_t *ah)
{
	ENTER;
	return make(ah);
}

static int destroy_ah(uint64_t ah UNUSED)
{
	return enter(__func__);
}

static int create_qp(struct engine_qp_init *init, uint64_t *qp)
{
	ENTER;
	init->qp_num = 0x17;
	init->cap.max_inline_data = 64;
	RECORD(qp_cookie, init->cookie);
	return make(qp);
}

static int modify_qp(uint64_t qp UNUSED, const struct ibv_qp_attr *attr UNUSED, int mask UNUSED)
{
	return enter(__func__);
}

static int query_qp(uint64_t qp UNUSED, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init UNUSED)
{
	ENTER;
	attr->qp_state = IBV_QPS_RTS;
	return 0;
}

static int destroy_qp(uint64_t qp UNUSED)
{
	return enter(__func__);
}

static int post_send(uint64_t qp UNUSED, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int status = enter(__func__);

	if (status) {
		*bad = wr;
		return status;
	}
	if (stub.on_send)
		stub.on_send(wr);
	stub.posted = 0;
	for (; wr && stub.posted < STUB_ROOM; wr = wr->next) {
		int i = stub.posted++;

		stub.wr[i] = *wr;
		for (int j = 0; j < wr->num_sge && j < 4; j++)
			stub.sge[i][j] = wr->sg_list[j];
		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(stub.data[i], (void *)(uintptr_t)wr->sg_list[0].addr, wr->sg_list[0].length);
	}
	return 0;
}

static int attach_mcast(uint64_t qp UNUSED, const uint8_t gid[16] UNUSED)
{
	return enter(__func__);
}

static int detach_mcast(uint64_t qp UNUSED, const uint8_t gid[16] UNUSED)
{
	return enter(__func__);
}

static int open_channel(int fd, int program UNUSED, uint32_t descriptor UNUSED, uint64_t *channel)
{
	ENTER;
	RECORD(cm_fd, fd);
	return make(channel);
}

static int close_channel(uint64_t channel UNUSED)
{
	return enter(__func__);
}

static long command(uint64_t channel UNUSED, const void *command, uint64_t length)
{
	int status = enter(__func__);

	if (stub.on_command)
		stub.on_command();
	if (status)
		return -status;
	memcpy(stub.command, command, length < sizeof(stub.command) ? length : sizeof(stub.command));
	return length;
}

static int hold_events(int fd, int hold)
{
	int status = enter(__func__);

	CHECK(fd >= 0 && (hold == 0 || hold == 1));
	return status;
}

static void serve(int pid UNUSED, int socket UNUSED)
{
}

static const struct engine engine = {
	.version = ENGINE_VERSION,
	.size = sizeof(struct engine),
	.open = open_,
	.close = close_,
	.query_device = query_device,
	.query_port = query_port,
	.query_gids = query_gids,
	.node_guid = node_guid,
	.serve = serve,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_mr,
	.rereg_mr = rereg_mr,
	.dereg_mr = dereg_mr,
	.alloc_mw = alloc_mw,
	.dealloc_mw = dealloc_mw,
	.create_cq = create_cq,
	.resize_cq = resize_cq,
	.destroy_cq = destroy_cq,
	.req_notify_cq = req_notify_cq,
	.poll_cq = poll_cq,
	.create_srq = create_srq,
	.modify_srq = modify_srq,
	.query_srq = query_srq,
	.destroy_srq = destroy_srq,
	.post_srq_recv = post_recv,
	.create_ah = create_ah,
	.destroy_ah = destroy_ah,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.post_send = post_send,
	.post_recv = post_recv,
	.use_queues = use_queues,
	.ring = ring,
	.attach_mcast = attach_mcast,
	.detach_mcast = detach_mcast,
	.open_channel = open_channel,
	.close_channel = close_channel,
	.command = command,
	.hold_events = hold_events,
};

const struct engine *ndklab_engine(uint32_t version, char *message, uint64_t size)
{
	if (getenv("STUB_ABSENT")) {
		snprintf(message, size, "no device here");
		errno = ENOSPC;
		return NULL;
	}
	return version == ENGINE_VERSION ? &engine : NULL;
}
