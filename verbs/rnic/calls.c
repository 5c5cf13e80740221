/* Calls of the library: each is a function of engine.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../lib/room.h"
#include "rnic.h"

const struct engine *engine;

/* A call that is being served. */
struct serving {
	struct remote_call call;
	char data[REMOTE_MAX_DATA];
	int files[REMOTE_MAX_FILES]; /* -1 where there is none, or it has been taken */
	struct remote_answer answer;
	char to[REMOTE_MAX_DATA];
};

/* Takes a file of the call, to be kept. */
static int take_file(struct serving *s, int i)
{
	int fd = s->files[i];

	s->files[i] = -1;
	return fd;
}

static int answer_with(struct serving *s, const void *data, size_t size)
{
	s->answer.size = size < s->call.room ? size : s->call.room;
	memcpy(s->to, data, s->answer.size);
	return 0;
}

/* Whether the call has a structure of that size with it. */
#define HAS(s, type) ((s)->call.size >= sizeof(type))

static int serve_hello(struct serving *s)
{
	const struct engine *(*entry)(uint32_t, char *, uint64_t);
	char message[256] = "";
	int status = check_room();
	void *library;

	if (status) {
		snprintf(message, sizeof(message), "%s", strerror(status));
		answer_with(s, message, strlen(message) + 1);
		return status;
	}
	status = ENODEV;
	s->data[sizeof(s->data) - 1] = 0;
	library = dlopen(s->data, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	entry = library ? (__typeof__(entry))dlsym(library, "ndklab_engine") : NULL;
	if (entry) {
		errno = ENODEV;
		engine = entry(ENGINE_VERSION, message, sizeof(message));
		status = engine ? 0 : errno;
	} else {
		snprintf(message, sizeof(message), "%s", dlerror());
	}
	if (engine && (engine->version != ENGINE_VERSION || engine->size < sizeof(*engine))) {
		snprintf(message, sizeof(message), "the engine is of another release of ndklab");
		engine = NULL;
		status = ENODEV;
	}
	if (status) {
		answer_with(s, message, strlen(message) + 1);
		return status;
	}
	doorbell = take_file(s, 1);
	status = open_notices();
	return status ? status : map_posts(s->files[0]);
}

static int serve_query_gids(struct serving *s)
{
	struct engine_gid gids[256];
	uint64_t max = s->call.argument[1];
	int n;

	if (max > sizeof(gids) / sizeof(gids[0]))
		max = sizeof(gids) / sizeof(gids[0]);
	n = engine->query_gids(s->call.argument[0], gids, max);
	if (n > 0)
		answer_with(s, gids, (n < (int)max ? n : (int)max) * sizeof(gids[0]));
	return n;
}

static int serve_create_cq(struct serving *s)
{
	uint64_t *a = s->call.argument;
	int channel = take_file(s, 1);

	return create_cq(a[0], a[1], a[2], s->files[0], channel, &s->answer.value[0]);
}

static int serve_create_srq(struct serving *s)
{
	struct ibv_srq_attr attr;
	int status;

	if (!HAS(s, attr))
		return EINVAL;
	memcpy(&attr, s->data, sizeof(attr));
	status = engine->create_srq(s->call.argument[0], s->call.argument[1], &attr, &s->answer.value[0]);
	return status ? status : answer_with(s, &attr, sizeof(attr));
}

static int serve_query_srq(struct serving *s)
{
	struct ibv_srq_attr attr;
	int status = engine->query_srq(s->call.argument[0], &attr);

	return status ? status : answer_with(s, &attr, sizeof(attr));
}

static int serve_create_qp(struct serving *s)
{
	struct engine_qp_init init;
	uint64_t send_cq;
	int status;

	if (!HAS(s, init))
		return EINVAL;
	memcpy(&init, s->data, sizeof(init));
	send_cq = init.send_cq;
	init.send_cq = engine_cq(init.send_cq);
	init.recv_cq = engine_cq(init.recv_cq);
	status = engine->create_qp(&init, &s->answer.value[0]);
	if (!status)
		status = note_qp(s->answer.value[0], init.qp_num, send_cq);
	return status ? status : answer_with(s, &init, sizeof(init));
}

static int serve_query_qp(struct serving *s)
{
	struct {
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
	} both = { 0 };
	int status = engine->query_qp(s->call.argument[0], &both.attr, &both.init);

	return status ? status : answer_with(s, &both, sizeof(both));
}

static int serve_destroy_qp(struct serving *s)
{
	int status = engine->destroy_qp(s->call.argument[0]);

	if (!status)
		forget_qp(s->call.argument[0]);
	return status;
}

/* The socket of events stays open after the context is closed, of which the engine may still tell something: it is
 * one of few, and goes with the process. */
static int serve_open(struct serving *s)
{
	return engine->open(keep_socket(take_file(s, 0)), &s->answer.value[0]);
}

static int serve_hold_events(struct serving *s)
{
	int fd = s->files[0] < 0 ? -1 : kept_socket(s->files[0]);

	return fd < 0 ? 0 : engine->hold_events(fd, s->call.argument[0]);
}

static int serve_mcast(struct serving *s)
{
	const uint8_t *gid = (const uint8_t *)&s->call.argument[1];

	return s->call.function == REMOTE_ATTACH_MCAST ? engine->attach_mcast(s->call.argument[0], gid) :
							  engine->detach_mcast(s->call.argument[0], gid);
}

static int serve_filling(struct serving *s)
{
	union {
		struct ibv_device_attr_ex device;
		struct ibv_port_attr port;
		uint64_t number;
	} u = { 0 };
	uint64_t context = s->call.argument[0];
	int status;

	if (s->call.function == REMOTE_NODE_GUID || s->call.function == REMOTE_CLOCK) {
		u.number = s->call.function == REMOTE_CLOCK ? engine->clock() : engine->node_guid();
		return answer_with(s, &u.number, sizeof(u.number));
	}
	if (s->call.function == REMOTE_QUERY_PORT) {
		status = engine->query_port(context, &u.port);
		return status ? status : answer_with(s, &u.port, sizeof(u.port));
	}
	status = engine->query_device(context, &u.device);
	return status ? status : answer_with(s, &u.device, sizeof(u.device));
}

static int64_t serve(struct serving *s)
{
	uint64_t *a = s->call.argument, *made = &s->answer.value[0];
	uint32_t *key = (uint32_t *)&s->answer.value[1];
	int fd;

	if (!engine && s->call.function != REMOTE_HELLO)
		return ENODEV;
	switch ((enum remote_function)s->call.function) {
	case REMOTE_HELLO:
		return serve_hello(s);
	case REMOTE_OPEN:
		return serve_open(s);
	case REMOTE_CLOSE:
		return engine->close(a[0]);
	case REMOTE_QUERY_DEVICE:
	case REMOTE_QUERY_PORT:
	case REMOTE_NODE_GUID:
	case REMOTE_CLOCK:
		return serve_filling(s);
	case REMOTE_HOLD_EVENTS:
		return serve_hold_events(s);
	case REMOTE_QUERY_GIDS:
		return serve_query_gids(s);
	case REMOTE_ALLOC_PD:
		return engine->alloc_pd(a[0], made);
	case REMOTE_DEALLOC_PD:
		return engine->dealloc_pd(a[0]);
	case REMOTE_REG_MR:
		return engine->reg_mr(a[0], (void *)(uintptr_t)a[1], a[2], a[3], a[4], made, key);
	case REMOTE_REREG_MR:
		return engine->rereg_mr(a[0], a[1], a[2], (void *)(uintptr_t)a[3], a[4], a[5], key);
	case REMOTE_DEREG_MR:
		return engine->dereg_mr(a[0]);
	case REMOTE_ALLOC_MW:
		return engine->alloc_mw(a[0], a[1], made, key);
	case REMOTE_DEALLOC_MW:
		return engine->dealloc_mw(a[0]);
	case REMOTE_CREATE_CQ:
		return serve_create_cq(s);
	case REMOTE_RESIZE_CQ:
		return resize_cq(a[0], a[1], s->files[0]);
	case REMOTE_DESTROY_CQ:
		return destroy_cq(a[0]);
	case REMOTE_CREATE_SRQ:
		return serve_create_srq(s);
	case REMOTE_MODIFY_SRQ:
		return HAS(s, struct ibv_srq_attr) ? engine->modify_srq(a[0], (void *)s->data, a[1]) : EINVAL;
	case REMOTE_QUERY_SRQ:
		return serve_query_srq(s);
	case REMOTE_DESTROY_SRQ:
		return engine->destroy_srq(a[0]);
	case REMOTE_CREATE_AH:
		return HAS(s, struct ibv_ah_attr) ? engine->create_ah(a[0], (void *)s->data, made) : EINVAL;
	case REMOTE_DESTROY_AH:
		return engine->destroy_ah(a[0]);
	case REMOTE_CREATE_QP:
		return serve_create_qp(s);
	case REMOTE_MODIFY_QP:
		return HAS(s, struct ibv_qp_attr) ? engine->modify_qp(a[0], (void *)s->data, a[1]) : EINVAL;
	case REMOTE_QUERY_QP:
		return serve_query_qp(s);
	case REMOTE_DESTROY_QP:
		return serve_destroy_qp(s);
	case REMOTE_BIND:
		return HAS(s, struct remote_post) ? bind_window((void *)s->data, key) : EINVAL;
	case REMOTE_ATTACH_MCAST:
	case REMOTE_DETACH_MCAST:
		return serve_mcast(s);
	case REMOTE_OPEN_CHANNEL:
		fd = take_file(s, 0);
		return engine->open_channel(fd, take_file(s, 1), a[0], made);
	case REMOTE_CLOSE_CHANNEL:
		return engine->close_channel(a[0]);
	case REMOTE_COMMAND:
		return engine->command(a[0], s->data, s->call.size);
	}
	return EINVAL;
}

static void take_files(struct serving *s, struct msghdr *message)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);

	for (int i = 0; i < REMOTE_MAX_FILES; i++)
		s->files[i] = -1;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(s->files, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
}

int serve_call(void)
{
	static struct serving s;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(s.files))];
	} control;
	struct iovec in[] = { { &s.call, sizeof(s.call) }, { s.data, sizeof(s.data) } };
	struct iovec out[] = { { &s.answer, sizeof(s.answer) }, { s.to, 0 } };
	struct msghdr message = {
		.msg_iov = in, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(REMOTE_SOCKET, &message, MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n < (ssize_t)sizeof(s.call) || s.call.size != n - sizeof(s.call))
		return 0;
	take_files(&s, &message);
	s.answer = (struct remote_answer){ .number = s.call.number };
	if (s.call.room > sizeof(s.to))
		s.call.room = sizeof(s.to);
	if (engine)
		engine->serve(s.call.pid, REMOTE_SOCKET);
	s.answer.status = serve(&s);
	for (int i = 0; i < REMOTE_MAX_FILES; i++)
		if (s.files[i] >= 0)
			close(s.files[i]);
	out[1].iov_len = s.answer.size;
	return writev(REMOTE_SOCKET, out, 2) >= 0;
}
