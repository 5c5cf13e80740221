/* The engine of the tests: it records what it is asked, and answers what a test wants. */
#ifndef STUB_H
#define STUB_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine.h"
#include "public.h"

#define STUB_ROOM 64

struct stub {
	/* The function of this name answers status as often as times says. */
	char failing[32];
	int status;
	int times;

	char last[32];		 /* the function called last */
	unsigned int calls;	 /* of all functions */
	unsigned int interruptible; /* calls in which SIGALRM was not blocked */

	int async_fd, comp_fd, cm_fd;
	uint64_t cq_cookie, qp_cookie, srq_cookie;

	/* The list posted last, with its SGEs and the data of inline ones. */
	int posted;
	struct ibv_send_wr wr[STUB_ROOM];
	struct ibv_sge sge[STUB_ROOM][4];
	char data[STUB_ROOM][64];

	/* What polls find. */
	int completions;
	struct ibv_wc wc[STUB_ROOM];

	char command[512];	  /* the command of an event channel that came last */
	void (*on_command)(void); /* what a test does meanwhile */

	/* Of a test that takes the work queues of QPs: these, and what it does when something is posted by a call, and when
	 * it is rung for. */
	struct engine_queues *queues;
	void (*on_send)(struct ibv_send_wr *wr);
	void (*on_recv)(struct ibv_recv_wr *wr);
	void (*on_ring)(void);
};

/* A failed check says where, and ends the program. */
#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

/* The stub of this process: that which the library has loaded. */
static inline struct stub *find_stub(void)
{
	void *library = dlopen(getenv("NDKLAB_RNIC_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
	struct stub *stub = library ? dlsym(library, "stub") : NULL;

	CHECK(stub);
	return stub;
}

static inline struct ibv_context *open_one(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	CHECK(context);
	return context;
}

/* The functions that programs reach by the inline code of verbs.h. */
static inline struct verbs_context *table(struct ibv_context *context)
{
	return (struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));
}

static inline void fail_next(struct stub *stub, const char *function, int status, int times)
{
	snprintf(stub->failing, sizeof(stub->failing), "%s", function);
	stub->status = status;
	stub->times = times;
}

#endif
