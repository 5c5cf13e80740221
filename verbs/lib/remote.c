/* Calling an engine in a process of its own (remote.h). Work requests and completions are in posts.c and queues.c.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "remote_lib.h"

struct files {
	int count;
	int fd[REMOTE_MAX_FILES];
};

static int send_call(const struct remote_call *call, const void *data, const struct files *files)
{
	struct iovec parts[] = {
		{ .iov_base = (void *)call, .iov_len = sizeof(*call) },
		{ .iov_base = (void *)data, .iov_len = call->size },
	};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(files->fd))];
	} control = { 0 };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (files && files->count) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(files->count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), files->fd, files->count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(files->count * sizeof(int));
	}
	return sendmsg(remote.socket, &message, MSG_NOSIGNAL) < 0 ? EIO : 0;
}

/* Calls the engine's process, with what is posted before it. Returns 0 and the answer, or EIO where the process has
 * ended. data and to may be NULL. The lock of posts is held. The answer to a caller that was killed, or whose thread was
 * cancelled, is the next one's to take out. */
static int exchange_locked(struct remote_call *call, const void *data, const struct files *files,
		    struct remote_answer *answer, void *to)
{
	struct iovec parts[] = {
		{ .iov_base = answer, .iov_len = sizeof(*answer) },
		{ .iov_base = to, .iov_len = call->room },
	};
	ssize_t n = -1;
	int status;

	call->pid = getpid();
	call->number = ++remote.posts->called;
	status = send_call(call, data, files);
	if (!status)
		do
			n = readv(remote.socket, parts, 2);
		while ((n < 0 && errno == EINTR) || (n >= (ssize_t)sizeof(*answer) && answer->number != call->number));
	return n < (ssize_t)sizeof(*answer) ? EIO : 0;
}

static int exchange(struct remote_call *call, const void *data, const struct files *files,
		    struct remote_answer *answer, void *to)
{
	int status;

	lock_shared(&remote.posts->lock);
	status = exchange_locked(call, data, files, answer, to);
	pthread_mutex_unlock(&remote.posts->lock);
	return status;
}

/* The result of a call with up to three numbers. */
static int call_numbers(enum remote_function function, uint64_t first, uint64_t second, uint64_t third)
{
	struct remote_call call = { .function = function, .argument = { first, second, third } };
	struct remote_answer answer;
	int status = exchange(&call, NULL, NULL, &answer, NULL);

	return status ? status : (int)answer.status;
}

/* The result of a call that ends something. With the engine's process everything has ended. */
static int call_ending(enum remote_function function, uint64_t object)
{
	int status = call_numbers(function, object, 0, 0);

	return status == EIO && remote_ended() ? 0 : status;
}

/* The result of a call that makes something; its handle goes to made. */
static int call_making(struct remote_call *call, const void *data, const struct files *files, uint64_t *made,
		       uint32_t *key, void *to)
{
	struct remote_answer answer;
	int status = exchange(call, data, files, &answer, to);

	if (!status)
		status = answer.status;
	if (status)
		return status;
	*made = answer.value[0];
	if (key)
		*key = answer.value[1];
	return 0;
}

/* The result of a call that fills a structure. */
static int call_filling(enum remote_function function, uint64_t object, void *to, uint32_t room)
{
	struct remote_call call = { .function = function, .room = room, .argument = { object } };
	struct remote_answer answer;
	int status = exchange(&call, NULL, NULL, &answer, to);

	return status ? status : (int)answer.status;
}

static int open_remote(int async_fd, uint64_t *context)
{
	struct remote_call call = { .function = REMOTE_OPEN };

	watch_remote();
	return call_making(&call, NULL, &(struct files){ 1, { async_fd } }, context, NULL, NULL);
}

static int close_remote(uint64_t context)
{
	return call_ending(REMOTE_CLOSE, context);
}

static int query_device_remote(uint64_t context, struct ibv_device_attr_ex *attr)
{
	return call_filling(REMOTE_QUERY_DEVICE, context, attr, sizeof(*attr));
}

static int query_port_remote(uint64_t context, struct ibv_port_attr *attr)
{
	return call_filling(REMOTE_QUERY_PORT, context, attr, sizeof(*attr));
}

static int query_gids_remote(uint64_t context, struct engine_gid *gids, int max)
{
	struct remote_call call = {
		.function = REMOTE_QUERY_GIDS,
		.room = max * sizeof(*gids),
		.argument = { context, max },
	};
	struct remote_answer answer;
	int status = exchange(&call, NULL, NULL, &answer, gids);

	return status ? -status : (int)answer.status;
}

static uint64_t node_guid_remote(void)
{
	uint64_t guid;

	return call_filling(REMOTE_NODE_GUID, 0, &guid, sizeof(guid)) ? 0 : guid;
}

static uint64_t clock_remote(void)
{
	uint64_t now;

	return call_filling(REMOTE_CLOCK, 0, &now, sizeof(now)) ? 0 : now;
}

static int alloc_pd_remote(uint64_t context, uint64_t *pd)
{
	struct remote_call call = { .function = REMOTE_ALLOC_PD, .argument = { context } };

	return call_making(&call, NULL, NULL, pd, NULL, NULL);
}

static int dealloc_pd_remote(uint64_t pd)
{
	return call_ending(REMOTE_DEALLOC_PD, pd);
}

static int reg_mr_remote(uint64_t pd, void *addr, uint64_t length, uint64_t iova, uint32_t access, uint64_t *mr,
			 uint32_t *key)
{
	struct remote_call call = {
		.function = REMOTE_REG_MR,
		.argument = { pd, (uintptr_t)addr, length, iova, access },
	};

	return call_making(&call, NULL, NULL, mr, key, NULL);
}

static int rereg_mr_remote(uint64_t mr, int flags, uint64_t pd, void *addr, uint64_t length, uint32_t access,
			   uint32_t *key)
{
	struct remote_call call = {
		.function = REMOTE_REREG_MR,
		.argument = { mr, flags, pd, (uintptr_t)addr, length, access },
	};
	uint64_t unchanged;

	return call_making(&call, NULL, NULL, &unchanged, key, NULL);
}

static int dereg_mr_remote(uint64_t mr)
{
	return call_ending(REMOTE_DEREG_MR, mr);
}

static int alloc_mw_remote(uint64_t pd, uint32_t type, uint64_t *mw, uint32_t *key)
{
	struct remote_call call = { .function = REMOTE_ALLOC_MW, .argument = { pd, type } };

	return call_making(&call, NULL, NULL, mw, key, NULL);
}

static int dealloc_mw_remote(uint64_t mw)
{
	return call_ending(REMOTE_DEALLOC_MW, mw);
}

int remote_create_cq(uint64_t context, int cqe, int ring, int channel, uint64_t cookie, uint64_t *cq)
{
	struct remote_call call = { .function = REMOTE_CREATE_CQ, .argument = { context, cqe, cookie } };
	struct files files = { channel < 0 ? 1 : 2, { ring, channel } };

	return call_making(&call, NULL, &files, cq, NULL, NULL);
}

int remote_resize_cq(uint64_t cq, int cqe, int ring)
{
	struct remote_call call = { .function = REMOTE_RESIZE_CQ, .argument = { cq, cqe } };
	struct remote_answer answer;
	int status = exchange(&call, NULL, &(struct files){ 1, { ring } }, &answer, NULL);

	return status ? status : (int)answer.status;
}

int remote_destroy_cq(uint64_t cq)
{
	return call_ending(REMOTE_DESTROY_CQ, cq);
}

int remote_create_srq(uint64_t pd, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *srq)
{
	struct remote_call call = {
		.function = REMOTE_CREATE_SRQ,
		.size = sizeof(*attr),
		.room = sizeof(*attr),
		.argument = { pd, cookie },
	};

	return call_making(&call, attr, NULL, srq, NULL, attr);
}

int remote_modify_srq(uint64_t srq, const struct ibv_srq_attr *attr, int mask)
{
	struct remote_call call = { .function = REMOTE_MODIFY_SRQ, .size = sizeof(*attr), .argument = { srq, mask } };
	struct remote_answer answer;
	int status = exchange(&call, attr, NULL, &answer, NULL);

	return status ? status : (int)answer.status;
}

int remote_query_srq(uint64_t srq, struct ibv_srq_attr *attr)
{
	return call_filling(REMOTE_QUERY_SRQ, srq, attr, sizeof(*attr));
}

int remote_destroy_srq(uint64_t srq)
{
	return call_ending(REMOTE_DESTROY_SRQ, srq);
}

static int create_ah_remote(uint64_t pd, const struct ibv_ah_attr *attr, uint64_t *ah)
{
	struct remote_call call = { .function = REMOTE_CREATE_AH, .size = sizeof(*attr), .argument = { pd } };

	int status = call_making(&call, attr, NULL, ah, NULL, NULL);

	if (status)
		return status;
	status = note_address(*ah, pd);
	if (status)
		call_numbers(REMOTE_DESTROY_AH, *ah, 0, 0);
	return status;
}

/* Nobody may use it any more, or be given its handle anew before it is forgotten. */
static int destroy_ah_remote(uint64_t ah)
{
	forget_address(ah);
	return call_ending(REMOTE_DESTROY_AH, ah);
}

int remote_create_qp(struct engine_qp_init *init, uint64_t *qp)
{
	struct remote_call call = { .function = REMOTE_CREATE_QP, .size = sizeof(*init), .room = sizeof(*init) };

	return call_making(&call, init, NULL, qp, NULL, init);
}

int remote_modify_qp(uint64_t qp, const struct ibv_qp_attr *attr, int mask)
{
	struct remote_call call = { .function = REMOTE_MODIFY_QP, .size = sizeof(*attr), .argument = { qp, mask } };
	struct remote_answer answer;
	int status = exchange(&call, attr, NULL, &answer, NULL);

	return status ? status : (int)answer.status;
}

int remote_query_qp(uint64_t qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	struct {
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
	} both;
	int status = call_filling(REMOTE_QUERY_QP, qp, &both, sizeof(both));

	if (status)
		return status;
	*attr = both.attr;
	init->cap = both.init.cap;
	init->qp_type = both.init.qp_type;
	init->sq_sig_all = both.init.sq_sig_all;
	return 0;
}

int remote_destroy_qp(uint64_t qp)
{
	return call_ending(REMOTE_DESTROY_QP, qp);
}

int remote_bind(const struct remote_post *post, uint32_t *key)
{
	struct remote_call call = { .function = REMOTE_BIND, .size = sizeof(*post) };
	struct remote_answer answer;
	int status = exchange_locked(&call, post, NULL, &answer, NULL);

	*key = status ? 0 : answer.value[1];
	return status ? status : (int)answer.status;
}

int remote_mcast(bool attach, uint64_t qp, const uint8_t gid[16])
{
	uint64_t halves[2];

	memcpy(halves, gid, sizeof(halves));
	return call_numbers(attach ? REMOTE_ATTACH_MCAST : REMOTE_DETACH_MCAST, qp, halves[0], halves[1]);
}

static int open_channel_remote(int fd, int program, uint32_t descriptor, uint64_t *channel)
{
	struct remote_call call = { .function = REMOTE_OPEN_CHANNEL, .argument = { descriptor } };

	watch_remote();
	return call_making(&call, NULL, &(struct files){ 2, { fd, program } }, channel, NULL, NULL);
}

static int close_channel_remote(uint64_t channel)
{
	return call_ending(REMOTE_CLOSE_CHANNEL, channel);
}

static long command_remote(uint64_t channel, const void *command, uint64_t length)
{
	struct remote_call call = { .function = REMOTE_COMMAND, .size = length, .argument = { channel } };
	struct remote_answer answer;

	if (length > REMOTE_MAX_DATA)
		return -EINVAL;
	return exchange(&call, command, NULL, &answer, NULL) ? command_ended(command, length) : answer.status;
}

static int hold_events_remote(int fd, int hold)
{
	struct remote_call call = { .function = REMOTE_HOLD_EVENTS, .argument = { hold } };
	struct remote_answer answer;
	int status = exchange(&call, NULL, &(struct files){ 1, { fd } }, &answer, NULL);

	return status ? status : (int)answer.status;
}

const struct engine remote_engine = {
	.version = ENGINE_VERSION,
	.size = sizeof(struct engine),
	.open = open_remote,
	.close = close_remote,
	.query_device = query_device_remote,
	.query_port = query_port_remote,
	.query_gids = query_gids_remote,
	.node_guid = node_guid_remote,
	.clock = clock_remote,
	.alloc_pd = alloc_pd_remote,
	.dealloc_pd = dealloc_pd_remote,
	.reg_mr = reg_mr_remote,
	.rereg_mr = rereg_mr_remote,
	.dereg_mr = dereg_mr_remote,
	.alloc_mw = alloc_mw_remote,
	.dealloc_mw = dealloc_mw_remote,
	.create_cq = queues_create_cq,
	.resize_cq = queues_resize_cq,
	.destroy_cq = queues_destroy_cq,
	.req_notify_cq = queues_req_notify_cq,
	.poll_cq = queues_poll_cq,
	.create_srq = queues_create_srq,
	.modify_srq = queues_modify_srq,
	.query_srq = queues_query_srq,
	.destroy_srq = queues_destroy_srq,
	.post_srq_recv = queues_post_srq_recv,
	.create_ah = create_ah_remote,
	.destroy_ah = destroy_ah_remote,
	.create_qp = queues_create_qp,
	.modify_qp = queues_modify_qp,
	.query_qp = queues_query_qp,
	.destroy_qp = queues_destroy_qp,
	.post_send = queues_post_send,
	.post_recv = queues_post_recv,
	.attach_mcast = queues_attach_mcast,
	.detach_mcast = queues_detach_mcast,
	.open_channel = open_channel_remote,
	.close_channel = close_channel_remote,
	.command = command_remote,
	.hold_events = hold_events_remote,
};

int greet_remote(int memory, const char *engine_path, char *message, size_t size)
{
	struct remote_call hello = { .function = REMOTE_HELLO, .size = strlen(engine_path) + 1, .room = size };
	struct remote_answer answer = { 0 };
	int status = exchange(&hello, engine_path, &(struct files){ 2, { memory, remote.doorbell } }, &answer, message);

	if (status)
		snprintf(message, size, "it has ended");
	return status ? ENODEV : (int)answer.status;
}
