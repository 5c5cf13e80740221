/* The list of devices, opening and closing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lib.h"
#include "public.h"

/* The names that a node's /sys and /dev have, too. */
#define DEVICE_NAME "ndk0"
#define UVERBS_NAME "uverbs0"

/* Programs compare devices of several lists by pointer (librdmacm does), so that there is one for all. */
static struct {
	struct ibv_device device;
	char room[ROOM];
} only = {
	.device = {
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = DEVICE_NAME,
		.dev_name = UVERBS_NAME,
		.dev_path = "/sys/class/infiniband_verbs/" UVERBS_NAME,
		.ibdev_path = "/sys/class/infiniband/" DEVICE_NAME,
	},
};

/* The contexts that are open: what else is closed was closed before. */
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static struct context *opened; /* guarded by listing */

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	list[0] = &only.device;
	if (count)
		*count = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1; /* the index is netlink's, which knows no such device */
}

/* The file in /sys spares loading the engine: programs ask this of all devices, and fork later. */
__be64 ibv_get_device_guid(struct ibv_device *device)
{
	const struct engine *engine;
	unsigned int part[4];
	uint8_t guid[8];
	char text[32];
	__be64 value;

	if (ibv_read_sysfs_file(device->ibdev_path, "node_guid", text, sizeof(text)) > 0 &&
	    sscanf(text, "%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3]) == 4) {
		for (int i = 0; i < 4; i++) {
			guid[2 * i] = part[i] >> 8;
			guid[2 * i + 1] = part[i];
		}
		memcpy(&value, guid, sizeof(value));
		return value;
	}
	engine = load_engine();
	return engine ? CALL_ENGINE(engine, node_guid) : 0;
}

static void set_functions(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	verbs->sz = sizeof(*verbs);
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->advise_mr = advise_mr;
	verbs->query_rt_values = query_rt_values;
	verbs->alloc_null_mr = alloc_null_mr;
	verbs->alloc_dm = alloc_dm;
	verbs->free_dm = free_dm;
	verbs->reg_dm_mr = reg_dm_mr;
	verbs->alloc_parent_domain = alloc_parent_domain;
	verbs->alloc_td = alloc_td;
	verbs->dealloc_td = dealloc_td;
	verbs->create_cq_ex = create_cq_ex;
	verbs->create_qp_ex = create_qp_ex;
	ops->_compat_query_device = query_device;
	ops->_compat_query_port = ibv_query_port;
	ops->alloc_mw = alloc_mw;
	ops->dealloc_mw = dealloc_mw;
	ops->bind_mw = bind_mw;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
}

static struct context *new_context(struct ibv_device *device)
{
	struct context *context = calloc(1, sizeof(*context));
	struct ibv_context *public;

	if (!context)
		return NULL;
	public = &context->verbs.context;
	if (open_event_pair(&public->async_fd, &context->async_fd)) {
		free(context);
		return NULL;
	}
	public->device = device;
	public->cmd_fd = open("/dev/infiniband/" UVERBS_NAME, O_RDWR | O_CLOEXEC); /* there is nothing to say to it */
	public->num_comp_vectors = 1;
	public->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&public->mutex, NULL);
	pthread_mutex_init(&context->taking, NULL);
	set_functions(&context->verbs);
	return context;
}

static void free_context(struct context *context)
{
	if (context->verbs.context.cmd_fd >= 0)
		close(context->verbs.context.cmd_fd);
	close(context->verbs.context.async_fd);
	close(context->async_fd);
	pthread_mutex_destroy(&context->verbs.context.mutex);
	pthread_mutex_destroy(&context->taking);
	free(context);
}

/* Opens the engine's context, and asks what the device is like. */
static int open_engine(struct context *context)
{
	const struct engine *engine = context->engine;
	int status = CALL_ENGINE(engine, open, context->async_fd, &context->handle);

	if (status)
		return status;
	status = CALL_ENGINE(engine, query_device, context->handle, &context->device);
	if (status)
		CALL_ENGINE(engine, close, context->handle);
	context->device.max_dm_size = DEVICE_MEMORY;
	return status;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const struct engine *engine = load_engine();
	struct context *context;
	int status;

	if (!engine)
		return NULL;
	context = new_context(device);
	if (!context)
		return NULL;
	context->engine = engine;
	context->apart = is_apart(engine);
	context->generation = generation;
	context->opener = getpid();
	status = open_engine(context);
	if (status) {
		free_context(context);
		errno = status;
		return NULL;
	}
	pthread_mutex_lock(&listing);
	context->next = opened;
	opened = context;
	pthread_mutex_unlock(&listing);
	return &context->verbs.context;
}

/* Where on the list a context is, or the end of the list. */
static struct context **find_opened(const struct context *context)
{
	struct context **at;

	for (at = &opened; *at && *at != context; at = &(*at)->next)
		;
	return at;
}

/* Whether a context is open, without a look at what it points to: it may have been closed. */
static bool is_open(const struct context *context)
{
	bool found;

	pthread_mutex_lock(&listing);
	found = *find_opened(context);
	pthread_mutex_unlock(&listing);
	return found;
}

static void unlist(struct context *context)
{
	pthread_mutex_lock(&listing);
	*find_opened(context) = context->next;
	pthread_mutex_unlock(&listing);
}

/* Returns false where the socket has no room. */
static bool tell_failure(struct context *context)
{
	const struct engine_async_event event = { .type = IBV_EVENT_DEVICE_FATAL };

	return send(context->async_fd, &event, sizeof(event), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
}

bool device_failed(void)
{
	pid_t self = getpid();
	bool all = true;

	pthread_mutex_lock(&listing);
	for (struct context *at = opened; at; at = at->next) {
		if (at->opener == self && !at->failure_told)
			at->failure_told = tell_failure(at);
		all = all && (at->opener != self || at->failure_told);
	}
	pthread_mutex_unlock(&listing);
	return all;
}

void device_forked(void)
{
	listing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* What is left in the context goes with it, as the kernel has it; its structures stay the program's. */
int ibv_close_device(struct ibv_context *public)
{
	struct context *context = to_context(public);
	int status = is_open(context) ? check_context(public) : EINVAL;

	if (!status)
		status = CALL(public, close, context->handle);
	if (status) {
		errno = status;
		return -1;
	}
	unlist(context);
	free_context(context);
	return 0;
}
